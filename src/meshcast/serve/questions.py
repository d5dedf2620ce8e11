"""What a request asks for, looked up in a worker: models, hardware and software by their names, programs by their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from meshcast.base import InputError, UsageError, nearest, write_whole
from meshcast.hardware import catalogue_name, cluster_names, device_names
from meshcast.jobs import SHIPPED
from meshcast.options import fidelity_names, stack_names
from meshcast.programs import Program, from_bytes
from meshcast.zoo import Plan, hint, models, program_called, spelling

BYTECODE = b"ML\xefR"  # what MLIR's bytecode begins with
_LOOKED_AT = 4096


def with_known_names(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked by the names of the catalogues: nothing that a request says is ever taken for a file.

    Models and hardware go by other names too, as on the command line: `meta-llama/Llama-3.1-8B` on `H100 SXM`.

    Raises:
        UsageError: One is not known.
    """
    on = catalogue_name(asked["on"])
    if on is None:
        _known(asked["on"], (*device_names(), *cluster_names()), "on")
    _known(asked["fidelity"], ("auto", *fidelity_names()), "fidelity")
    if asked.get("stack"):
        _known(asked["stack"], stack_names(), "stack")
    if asked.get("plan"):
        stack = Plan.parse(asked["plan"]).stack
        if stack is not None:
            _known(stack, stack_names(), "plan")
    return {**asked, "on": on, **_model(asked)}


def _model(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The model of the zoo that is asked for, with the mode that its name says: `llama3-8b-decode`."""
    name = asked.get("model")
    if name is None:
        return {}
    found = program_called(name)
    if found is None:
        if any(spelling(known) == spelling(name) for known in SHIPPED):
            raise UsageError(
                f"{name!r} has embedding tables, which are shared out on the command line",
                where="model",
                fix=f"meshcast predict {name} --on dgx-h100 --devices 8",
            )
        raise UsageError(f"{name!r} is not in the catalogue", where="model", fix=hint(name))
    if found.name in models():
        return {"model": found.name}
    return {"model": found.name.removesuffix(f"-{found.mode}"), "settings": {"mode": found.mode, **asked["settings"]}}


def _known(name: str, names: Iterable[str], where: str) -> None:
    known = list(names)
    if name not in known:
        raise UsageError(f"{name!r} is not in the catalogue", where=where, fix=nearest(name, known))


def builder_target(asked: Mapping[str, Any], folder: Path) -> str:
    """The model that a configuration names, or the file that a Hugging Face configuration is put in."""
    if asked["model"] is not None:
        return str(asked["model"])
    return str(config_file(asked["config"], folder))


def config_file(text: str, folder: Path) -> Path:
    """A file with the text of a Hugging Face configuration; it is read, and nothing that it names is."""
    place = Path(f"config-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json")
    if not (folder / place).exists():
        write_whole(folder / place, text)
    return place  # as the worker, which stands in the folder, finds it: messages tell no place of this machine


def program_of(data: bytes, name: str) -> Program:
    """The program in an upload: StableHLO as text or as bytecode, and nothing else.

    Raises:
        InputError: It is something else, or damaged.
    """
    if not data.startswith(BYTECODE):
        head = data[:_LOOKED_AT]
        if b"\0" in head or not _is_text(data):
            raise InputError(
                "is neither StableHLO text nor bytecode", where=name, fix="drop a .mlir or .mlirbc file, not packed"
            )
        if head.lstrip().startswith(b"HloModule"):
            raise InputError("is XLA's HLO text", where=name, fix="the command line reads it: meshcast predict FILE")
    return from_bytes(data, name=name, where=name)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True
