"""torch and torchax themselves: found, imported, and told from other objects without importing either."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from meshcast.errors import UnsupportedError, UsageError

EXTRA = "torch"
INSTALL = f"pip install 'meshcast[{EXTRA}]'"


def holds_torch(value: Any) -> bool:
    """Whether a value is, or holds, a tensor or a module of PyTorch; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return False
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return True
    if isinstance(value, Mapping):
        return any(map(holds_torch, value.values()))
    return isinstance(value, (tuple, list)) and any(map(holds_torch, value))


def of_exported_program(value: Any) -> Any:
    """`(module, args, options)` of a `torch.export.ExportedProgram` that has its example inputs; else the value itself."""
    exported = getattr(sys.modules.get("torch.export"), "ExportedProgram", None)
    if exported is None or not isinstance(value, exported):
        return value
    if value.example_inputs is None:
        raise UsageError(
            "the ExportedProgram has no example inputs", where="torch", fix="return (program.module(), args) instead"
        )
    args, kwargs = value.example_inputs
    return value.module(), tuple(args), {"kwargs": dict(kwargs)} if kwargs else {}


def require_torch() -> None:
    """Makes torch and torchax importable.

    Raises:
        UnsupportedError: One of them is not installed, or they do not go together.
    """
    missing = [name for name in ("torch", "torchax") if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"PyTorch programs need {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            where="torch",
            fix=INSTALL,
        )
    try:
        with named_dimensions_absent():
            importlib.import_module("torchax")
            importlib.import_module("torchax.decompositions")
    except Exception as error:  # an import of foreign packages may raise anything
        versions = " and ".join(f"{name} {_version(name)}" for name in ("torch", "torchax"))
        raise UnsupportedError(
            f"{versions} do not import together: {type(error).__name__}: {error}", where="torch", fix=INSTALL
        ) from error


@contextmanager
def named_dimensions_absent() -> Iterator[None]:
    """While torchax is imported: overloads for named dimensions, which torch 2.13 dropped, read as None.

    torchax 0.0.13 lists these overloads in its tables when it is imported, and calls none of them.
    """
    import torch

    packet = torch._ops.OpOverloadPacket
    original = packet.__getattr__

    def without_names(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except AttributeError:
            if "dimname" in name.lower() or "names" in name.split("_"):
                return None
            raise

    packet.__getattr__ = without_names
    try:
        yield
    finally:
        packet.__getattr__ = original


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "of unknown version"
