"""Programs from `jax.export`: an `Exported` object or its serialised bytes, symbolic dimensions included."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from meshcast.capture import mlir
from meshcast.capture.annotations import bring_over_shardings
from meshcast.capture.dynamic_shapes import Symbol, refine
from meshcast.capture.program import Program, argument_names, from_module
from meshcast.errors import InputError


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
    module = mlir.deserialize_portable(bytes(module_bytes), where=where)
    names = argument_names(module, where=where)
    module = refine(module, dims=dims or {}, where=where, symbols=_symbols(exported))
    bring_over_shardings(module, where=where)
    return from_module(module, name=name, source=where, sha256=digest, names=names)


def _symbols(exported: Any) -> dict[tuple[int, int], Symbol] | None:
    """The symbolic sizes of the arguments that the module kept."""
    symbols: dict[tuple[int, int], Symbol] = {}
    for position, index in enumerate(exported.module_kept_var_idx):
        for dim, size in enumerate(exported.in_avals[index].shape):
            if not isinstance(size, int):
                symbols[position, dim] = _evaluator(size)
    return symbols or None


def _evaluator(size: Any) -> Symbol:
    """A symbolic size such as `2*b` as a function of its variables."""

    def evaluate(dims: Mapping[str, int]) -> int:
        names = sorted(size._get_vars())
        for variable in names:
            if variable not in dims:
                raise KeyError(variable)
        return int(size._evaluate({variable: dims[variable] for variable in names}))

    return evaluate
