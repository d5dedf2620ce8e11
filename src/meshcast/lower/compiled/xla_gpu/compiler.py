"""Compiling a program for a GPU that is not there: in a child process, kept on disk by content.

GEMMs are compiled as Triton fusions first, with whatever XLA fuses into them; nothing is autotuned, as there is nothing
to time on. XLA cannot tile every product that way and then gives up on the whole program: such a program is compiled
once more with its products as cuBLASLt calls.

Foreign functions that only a process with CUDA's libraries can register (cuSOLVER's factorisations, kernels of other packages)
stay in the program as calls, for which the compiler makes no code: everything around them is compiled as it is on a GPU, and what
such a call costs is for our own rules to say.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from meshcast.base import Child, ChildCrashedError, ChildFailedError, ChildTimedOutError, UnsupportedError, tell
from meshcast.hardware import Device
from meshcast.lower.compiled.compilation_cache import Compilation, compilation, compiled_once, first_sentence
from meshcast.lower.compiled.xla_gpu.installation import HOW_TO_INSTALL_GPU_COMPILER, found_gpu_compiler
from meshcast.lower.compiled.xla_gpu.target import missing_facts, target_config
from meshcast.programs import Program

LIMIT_S = 300.0  # unless another one is asked for
GPUS_PER_HOST = 8
# Two ways to compile products, the first one preferred.
TRITON = {"xla_gpu_autotune_level": "0", "xla_gpu_mock_custom_calls": "True"}
CUBLAS = {**TRITON, "xla_gpu_enable_triton_gemm": "False"}
# Off in XLA's own defaults; JAX's guide to performance on GPUs turns it on for programs over several.
_LATENCY_HIDING = "xla_gpu_enable_latency_hiding_scheduler"
_NO_TILES = "Couldn't find output tile sizes"
_CACHE = "xla-gpu"

_child = Child("meshcast.lower.compiled.xla_gpu._child")


def why_not(device: Device) -> str | None:
    """Why nothing can be compiled for a device here; None when it can be tried."""
    found = found_gpu_compiler()
    return missing_facts(device) or (f"{found} ({HOW_TO_INSTALL_GPU_COMPILER})" if isinstance(found, str) else None)


def compile_program(
    program: Program, device: Device, *, limit_s: float | None = None, hides_latency: bool = True
) -> Compilation:
    """The program compiled for as many of a device as its mesh has.

    Args:
        program: The program, before any partitioning.
        device: A CUDA GPU.
        limit_s: How long compiling may take. That it took longer is kept too: who asks for no more is not made to wait again.
        hides_latency: Whether programs over several devices get XLA's latency-hiding scheduler, unless `XLA_FLAGS` speaks of it.

    Raises:
        UnsupportedError: The compiler is not installed, cannot target the device, refuses the program, or takes too long.
    """
    limit = LIMIT_S if limit_s is None else limit_s
    found = found_gpu_compiler()
    if isinstance(found, str):
        raise UnsupportedError(
            found, where="--lowering compiled", fix=f"{HOW_TO_INSTALL_GPU_COMPILER}, or use --lowering modelled"
        )
    header: dict[str, Any] = {
        "target": target_config(device), "topology": topology(program.devices), "devices": program.devices,
    }  # fmt: skip
    outside = os.environ.get("XLA_FLAGS", "")
    hiding = (
        {_LATENCY_HIDING: "True"} if program.devices > 1 and hides_latency and _LATENCY_HIDING not in outside else {}
    )
    ways = [{**TRITON, **hiding}, {**CUBLAS, **hiding}]
    made_from = {
        "compiler": found.release, "jaxlib": metadata.version("jaxlib"), "flags_from_outside": outside, "target": header,
        "flags": ways,
    }  # fmt: skip
    data = program.bytecode
    places = {"library": str(found.library), "toolkit": str(found.toolkit)}
    tell(f"compiling {program.name} for {device.name}")
    entry, kept = compiled_once(
        _CACHE, made_from, program, lambda: _compiled({**header, **places}, data, program.name, ways, limit),
        holds=lambda entry: entry.get("unfinished", math.inf) >= limit,
    )  # fmt: skip
    if "unfinished" in entry:
        before = ", as an earlier run found" if kept else ""
        raise UnsupportedError(
            f"XLA's GPU compiler takes longer than {entry['unfinished']:g} s for this program{before}",
            where=program.name,
            fix=f"allow it more (--compile-limit {2 * entry['unfinished']:g}), or use --lowering modelled",
        )
    return compilation(entry, found.release, kept_before=kept)


def topology(devices: int) -> str:
    """Slices x hosts x GPUs of a host, as the compiler names a cluster; hosts of eight where that divides."""
    per_host = GPUS_PER_HOST if devices % GPUS_PER_HOST == 0 else devices
    return f"1x{devices // per_host}x{per_host}"


def _compiled(
    header: dict[str, Any], data: bytes, where: str, ways: Sequence[Mapping[str, str]], limit_s: float
) -> dict[str, Any]:
    """What the compiler answers, by the first of the ways that tiles all products; after the limit, that limit (`unfinished`)."""
    failures: list[str] = []
    ends = time.monotonic() + limit_s
    for flags in ways:
        try:
            found = json.loads(
                _child.request({**header, "flags": flags}, data, timeout_s=max(0.0, ends - time.monotonic()))
            )
        except ChildFailedError as error:
            failures.append(str(error))
            if _NO_TILES not in failures[-1]:
                break
        except ChildTimedOutError:
            return {"unfinished": limit_s}
        except ChildCrashedError as error:
            failures.append(f"the compiler died, {error}")
            break
        else:
            return dict(found)
    raise UnsupportedError(
        f"XLA's GPU compiler refuses this program: {first_sentence(failures[-1])}",
        where=where,
        fix="use --lowering modelled",
    )
