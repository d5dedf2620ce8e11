"""Compiling a program for a GPU that is not there: in a child process, kept on disk by content.

GEMMs are compiled as Triton fusions first, with whatever XLA fuses into them; nothing is autotuned, as there is nothing
to time on. XLA cannot tile every product that way and then gives up on the whole program: such a program is compiled
once more with its products as cuBLASLt calls.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from meshcast.base import Child, ChildCrashedError, ChildFailedError, UnsupportedError
from meshcast.hardware import Device
from meshcast.lower.compilation import Compilation, compilation, compiled_once, first_sentence
from meshcast.lower.xla_gpu.target import missing_facts, target_config
from meshcast.programs import Program

EXTRA = "gpu-compiler"
TIMEOUT_S = 1800.0
GPUS_PER_HOST = 8
# Two ways to compile products, the first one preferred.
TRITON = {"xla_gpu_autotune_level": "0"}
CUBLAS = {**TRITON, "xla_gpu_enable_triton_gemm": "False"}
_NO_TILES = "Couldn't find output tile sizes"
_CACHE = "xla-gpu"

_child = Child("meshcast.lower.xla_gpu._child")


def installed_version() -> str | None:
    """The compiler that is installed, without loading it; None where the extra is missing."""
    return next((f"{name} {version}" for name, version in _releases()), None)


def why_not_installed() -> str | None:
    """Why there is no compiler to use; None when there is one."""
    found = next(_releases(), None)
    if found is None:
        return f"XLA's CUDA compiler is not installed (pip install 'meshcast[{EXTRA}]')"
    name, version = found
    jaxlib = metadata.version("jaxlib")
    if version.split(".")[:3] != jaxlib.split(".")[:3]:
        return f"{name} {version} does not go with jaxlib {jaxlib} (pip install {name}=={jaxlib})"
    return None


def why_not(device: Device) -> str | None:
    """Why nothing can be compiled for a device here; None when it can be tried."""
    return missing_facts(device) or why_not_installed()


def _releases() -> Iterator[tuple[str, str]]:
    for name in ("jax-cuda13-pjrt", "jax-cuda12-pjrt"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def compile_program(program: Program, device: Device) -> Compilation:
    """The program compiled for as many of a device as its mesh has.

    Raises:
        UnsupportedError: The compiler is not installed, cannot target the device, or refuses the program.
    """
    version, why = installed_version(), why_not_installed()
    if version is None or why is not None:
        raise UnsupportedError(str(why), where="--lowering compiled", fix="install it, or use --lowering modelled")
    header: dict[str, Any] = {
        "target": target_config(device), "topology": topology(program.devices), "devices": program.devices,
    }  # fmt: skip
    made_from = {
        "compiler": version, "jaxlib": metadata.version("jaxlib"), "flags_from_outside": os.environ.get("XLA_FLAGS", ""),
        "target": header, "flags": [TRITON, CUBLAS],
    }  # fmt: skip
    data = program.bytecode
    entry = compiled_once(_CACHE, made_from, data, lambda: _compiled(header, data, program.name))
    return compilation(entry, version)


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
        f"XLA's GPU compiler refuses this program: {first_sentence(failures[-1])}",
        where=where,
        fix="use --lowering modelled",
    )
