"""Compiling a program for a GPU that is not there: in a child process, kept on disk by content.

GEMMs are compiled as Triton fusions first, with whatever XLA fuses into them; nothing is autotuned, as there is nothing
to time on. XLA cannot tile every product that way and then gives up on the whole program: such a program is compiled
once more with its products as cuBLASLt calls.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from meshcast.capture.program import Program
from meshcast.child import Child, ChildCrashedError, ChildFailedError
from meshcast.errors import UnsupportedError
from meshcast.hardware import Device
from meshcast.lower.kernel import CompiledMemory
from meshcast.lower.xla_gpu import cache
from meshcast.lower.xla_gpu.target import target_config

EXTRA = "gpu-compiler"
TIMEOUT_S = 1800.0
GPUS_PER_HOST = 8
# Two ways to compile products, the first one preferred.
TRITON = {"xla_gpu_autotune_level": "0"}
CUBLAS = {**TRITON, "xla_gpu_enable_triton_gemm": "False"}
_NO_TILES = "Couldn't find output tile sizes"
_FORMAT = 1  # of an entry in the cache

_child = Child("meshcast.lower.xla_gpu._child")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What XLA made of a program: optimised, scheduled HLO text of one device, and its memory."""

    hlo: str
    memory: CompiledMemory
    version: str


def installed_version() -> str | None:
    """The compiler that is installed, without loading it; None where the extra is missing."""
    for release in ("13", "12"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return f"jax-cuda{release}-pjrt {metadata.version(f'jax-cuda{release}-pjrt')}"
    return None


def compile_program(program: Program, device: Device) -> Compilation:
    """The program compiled for as many of a device as its mesh has.

    Raises:
        UnsupportedError: The compiler is not installed, cannot target the device, or refuses the program.
    """
    version = installed_version()
    if version is None:
        raise UnsupportedError(
            "the compiled lowering needs XLA's CUDA compiler, which is not installed",
            where="--lowering compiled",
            fix=f"pip install 'meshcast[{EXTRA}]', or use --lowering modelled",
        )
    header: dict[str, Any] = {
        "target": target_config(device), "topology": topology(program.devices), "devices": program.devices,
    }  # fmt: skip
    data = program.bytecode
    flags_from_outside = os.environ.get("XLA_FLAGS", "")
    made_from = json.dumps([_FORMAT, version, metadata.version("jaxlib"), flags_from_outside, header, [TRITON, CUBLAS]])
    key = hashlib.sha256(made_from.encode() + b"\0" + data).hexdigest()
    entry = cache.read(key)
    if entry is None:
        entry = _compiled(header, data, program.name)
        cache.write(key, entry)
    sizes = {part: int(entry[part]) for part in ("arguments", "outputs", "temporaries", "aliased")}
    return Compilation(hlo=entry["hlo"], memory=CompiledMemory(**sizes), version=version)


def topology(devices: int) -> str:
    """Slices x hosts x GPUs of a host, as the compiler names a cluster; hosts of eight where that divides."""
    per_host = GPUS_PER_HOST if devices % GPUS_PER_HOST == 0 else devices
    return f"1x{devices // per_host}x{per_host}"


def _compiled(header: dict[str, Any], data: bytes, where: str) -> dict[str, Any]:
    failures: list[str] = []
    for flags in (TRITON, CUBLAS):
        try:
            found = json.loads(_child.request({**header, "flags": flags}, data, timeout_s=TIMEOUT_S))
        except ChildFailedError as error:
            failures.append(str(error))
            if _NO_TILES not in failures[-1]:
                break
        except ChildCrashedError as error:
            failures.append(f"the compiler died, {error}")
            break
        else:
            return dict(found)
    raise UnsupportedError(
        f"XLA's GPU compiler refuses this program: {next(_sentences(failures[-1]))}",
        where=where,
        fix="use --lowering modelled",
    )


def _sentences(message: str) -> Iterator[str]:
    """A message's lines, long ones cut: XLA prints whole instructions."""
    for line in message.strip().splitlines() or [""]:
        yield line if len(line) <= 300 else line[:300] + " ..."
