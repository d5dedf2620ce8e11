"""Programs from `jax.export`: an `Exported` object or its serialised bytes, symbolic dimensions included."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from meshcast.base import InputError, UnsupportedError
from meshcast.programs import mlir
from meshcast.programs.annotations import bring_over_shardings
from meshcast.programs.dynamic_shapes import Symbol, refine
from meshcast.programs.probe import clean_bytecode
from meshcast.programs.program import Program, argument_names, from_module


def from_serialized(data: bytes, *, name: str, where: str, dims: Mapping[str, int] | None = None) -> Program:
    """The program in the bytes of `Exported.serialize()`; other binary data is refused."""
    import jax.export

    try:
        exported = jax.export.deserialize(bytearray(data))
        module_bytes = exported.mlir_module_serialized
    except Exception:  # the flatbuffer reader raises anything (struct, index, type errors) on foreign bytes
        raise InputError(
            "binary data that is neither MLIR bytecode, a StableHLO portable artifact nor a jax.export artifact",
            where=where,
            fix="name a StableHLO file; weights and archives are not programs",
        ) from None
    return _program(exported, module_bytes, name=name, where=where, digest=hashlib.sha256(data).hexdigest(), dims=dims)


def from_exported(exported: Any, *, name: str | None = None, dims: Mapping[str, int] | None = None) -> Program:
    """The program of a `jax.export.Exported`."""
    data = exported.mlir_module_serialized
    label = name or exported.fun_name
    return _program(exported, data, name=label, where="jax.export", digest=hashlib.sha256(data).hexdigest(), dims=dims)


def _program(
    exported: Any, module_bytes: bytes, *, name: str, where: str, digest: str, dims: Mapping[str, int] | None
) -> Program:
    module = mlir.parse_module(clean_bytecode(bytes(module_bytes), portable=True, where=where), where=where)
    names = argument_names(module, where=where)
    module = refine(module, dims=dims or {}, where=where, symbols=_symbols(exported, where=where))
    bring_over_shardings(module, where=where)
    return from_module(module, name=name, source=where, sha256=digest, names=names)


def _symbols(exported: Any, *, where: str) -> dict[tuple[int, int], Symbol] | None:
    """The symbolic sizes of the arguments that the module kept."""
    symbols: dict[tuple[int, int], Symbol] = {}
    for position, index in enumerate(exported.module_kept_var_idx):
        if not 0 <= index < len(exported.in_avals):
            raise InputError(
                f"the artifact keeps argument {index} of {len(exported.in_avals)}",
                where=where,
                fix="the artifact is damaged: export it again",
            )
        for dim, size in enumerate(exported.in_avals[index].shape):
            if not isinstance(size, int):
                symbols[position, dim] = JaxSymbol(size, where=where)
    return symbols or None


class JaxSymbol:
    """A symbolic size of `jax.export`, such as `2*b`.

    JAX has no public way to ask what such a size depends on, or to put numbers in: its two private methods are called
    here and nowhere else. Sizes given by place (`--dim arg0.1=32`) do without them.
    """

    def __init__(self, size: Any, *, where: str) -> None:
        self._size = size
        self._where = where

    @property
    def variables(self) -> tuple[str, ...]:
        """Names that it depends on."""
        return tuple(sorted(self._method("_get_vars")()))

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """The size where its variables have these values."""
        return int(self._method("_evaluate")({name: dims[name] for name in self.variables}))

    def _method(self, name: str) -> Any:
        method = getattr(self._size, name, None)
        if not callable(method):
            import jax

            raise UnsupportedError(
                f"jax {jax.__version__} does not tell what its symbolic size {self._size} depends on",
                where=self._where,
                fix="give sizes by place (--dim arg0.0=32), or install a jax that this meshcast was tested with",
            )
        return method
