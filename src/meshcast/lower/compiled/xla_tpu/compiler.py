"""Compiling a program for TPUs that are not there: in a child process, kept on disk by content."""

from __future__ import annotations

import json
import os
import re
from importlib import metadata
from typing import Any

from meshcast.base import (
    Child,
    ChildCrashedError,
    ChildFailedError,
    ChildTimedOutError,
    InfeasibleError,
    UnsupportedError,
    how_to_install,
)
from meshcast.hardware import Device
from meshcast.lower.compiled.compilation_cache import Compilation, compilation, compiled_once, first_sentence
from meshcast.lower.compiled.xla_tpu.topology import missing_facts, topology
from meshcast.programs import Program

EXTRA = "tpu"
TIMEOUT_S = 7200.0
_CACHE = "xla-tpu"
# Their values change what the compiler makes; XLA:GPU reads the first alone.
FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED.*?\((?P<demand>[\d.]+)(?P<unit>[BKMGT]?)\) exceeds available HBM "
    r"\((?P<bound>[\d.]+)(?P<bound_unit>[BKMGT]?)\)",
    re.DOTALL,
)
_USED_OF = re.compile(
    r"RESOURCE_EXHAUSTED.*?Used (?P<demand>[\d.]+)(?P<unit>[BKMGT]?) of (?P<bound>[\d.]+)(?P<bound_unit>[BKMGT]?) hbm",
    re.DOTALL,
)
_SCALE = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

_child = Child("meshcast.lower.compiled.xla_tpu._child")


class OutOfMemoryError(InfeasibleError):
    """The compiler found that a program does not fit a device."""

    def __init__(self, demand: int, bound: int, said: str, *, where: str) -> None:
        super().__init__(said, where=where)
        self.demand = demand
        self.bound = bound


def installed_version() -> str | None:
    """The compiler that is installed, without loading it; None where the extra is missing."""
    try:
        return f"libtpu {metadata.version('libtpu')}"
    except metadata.PackageNotFoundError:
        return None


def why_not_installed() -> str | None:
    """Why there is no compiler to use; None when there is one."""
    if installed_version() is None:
        return f"the TPU compiler, libtpu, is not installed (pip install 'meshcast[{EXTRA}]')"
    return None


def why_not(device: Device) -> str | None:
    """Why nothing can be compiled for a device here; None when it can be tried."""
    return missing_facts(device) or why_not_installed()


def compile_program(program: Program, device: Device, *, limit_s: float | None = None) -> Compilation:
    """The program compiled for as many of a device as its mesh has, within `limit_s` or two hours.

    Raises:
        OutOfMemoryError: It does not fit the device's memory.
        UnsupportedError: The compiler is not installed, cannot target the device, or refuses the program.
    """
    version = installed_version()
    if version is None:
        raise UnsupportedError(
            str(why_not_installed()),
            where="--lowering compiled",
            fix=f"{how_to_install(EXTRA)}, or use --fidelity analytical",
        )
    name, options = topology(device, program.devices)
    header: dict[str, Any] = {"topology": name, "options": options, "devices": program.devices}
    made_from = {
        "compiler": version, "jaxlib": metadata.version("jaxlib"), "target": header,
        "flags_from_outside": [os.environ.get(flag, "") for flag in FLAG_VARIABLES],
    }  # fmt: skip
    data = program.bytecode
    timeout_s = TIMEOUT_S if limit_s is None else limit_s
    entry, kept = compiled_once(_CACHE, made_from, program, lambda: _compiled(header, data, timeout_s))
    if "out_of_memory" in entry:
        demand, bound = entry["out_of_memory"]
        raise OutOfMemoryError(demand, bound, entry["message"], where=program.name)
    if "message" in entry:
        raise UnsupportedError(
            f"the TPU compiler refuses this program: {entry['message']}",
            where=program.name,
            fix="use --fidelity analytical",
        )
    return compilation(entry, version, kept_before=kept)


def _compiled(header: dict[str, Any], data: bytes, timeout_s: float) -> dict[str, Any]:
    """What the compiler answers: a program, that it does not fit, or that it cannot be compiled; all are worth keeping."""
    try:
        return dict(json.loads(_child.request(header, data, timeout_s=timeout_s)))
    except ChildFailedError as error:
        message = str(error)
    except ChildTimedOutError as error:  # not kept: on another day the machine may be idle
        raise UnsupportedError(
            f"the TPU compiler takes longer than {timeout_s:g} s for this program",
            where="--lowering compiled",
            fix=f"allow it more (--compile-limit {2 * timeout_s:g}), or use --fidelity analytical",
        ) from error
    except ChildCrashedError as error:  # not kept: the same program may pass the next time, or on a larger machine
        raise UnsupportedError(
            f"the TPU compiler died, {first_sentence(str(error))}",
            where="--lowering compiled",
            fix="try again, or use --fidelity analytical",
        ) from error
    answer: dict[str, Any] = {"message": first_sentence(message)}
    found = _OUT_OF_MEMORY.search(message) or _USED_OF.search(message)
    if found is not None:
        answer["out_of_memory"] = [
            int(float(found["demand"]) * _SCALE[found["unit"]]),
            int(float(found["bound"]) * _SCALE[found["bound_unit"]]),
        ]
    return answer
