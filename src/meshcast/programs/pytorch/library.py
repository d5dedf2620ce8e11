"""torch and torchax themselves: found, imported, and told from other objects without importing either."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from meshcast.base import UnsupportedError, UsageError, how_to_install
from meshcast.programs.stand_ins import standing_in

EXTRA = "torch"


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
            fix=how_to_install(EXTRA),
        )
    try:
        with removed_operators_named(), _fast_attention_kept():
            importlib.import_module("torchax")
            importlib.import_module("torchax.decompositions")
    except Exception as error:  # an import of foreign packages may raise anything
        versions = " and ".join(f"{name} {_version(name)}" for name in ("torch", "torchax"))
        raise UnsupportedError(
            f"{versions} do not import together: {type(error).__name__}: {error}",
            where="torch",
            fix=how_to_install(EXTRA),
        ) from error


@contextmanager
def _fast_attention_kept() -> Iterator[None]:
    """While torchax is imported, which switches `nn.MultiheadAttention`'s own operator off for the process: it stays as set."""
    mha = importlib.import_module("torch").backends.mha
    before = mha.get_fastpath_enabled()
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


class _Removed:
    """Stands for an operator, or an overload of one, that this release of torch no longer has."""

    def __getattr__(self, name: str) -> _Removed:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Removed()


@contextmanager
def removed_operators_named() -> Iterator[None]:
    """While torchax is imported: operators of ATen and overloads that torch has dropped can be named all the same.

    torchax 0.0.13 lists operators in its tables when it is imported, among them overloads for named dimensions, which torch
    2.13 dropped, and deprecated operators (`cholesky`, `lstsq`), which 2.15 has not. A module cannot call what torch does
    not have, so their entries are never looked up.
    """
    import torch

    def naming(kind: Any) -> Any:
        original = kind.__getattr__

        def named(self: Any, name: str) -> Any:
            try:
                return original(self, name)
            except AttributeError:
                if name.startswith("__") or vars(self).get("name", "aten") != "aten":
                    raise
                return _Removed()

        return standing_in(kind, __getattr__=named)

    with naming(torch._ops._OpNamespace), naming(torch._ops.OpOverloadPacket):
        yield


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "of unknown version"
