"""Programs from `jax.export`: an `Exported` object or its serialised bytes, symbolic dimensions included."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from meshcast.capture import mlir
from meshcast.capture.dynamic_shapes import refine
from meshcast.capture.program import Program, from_module
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
    symbols: dict[tuple[int, int], Callable[[Mapping[str, int]], int]] = {}
    kept = getattr(exported, "module_kept_var_idx", range(len(exported.in_avals)))
    for position, index in enumerate(kept):
        for dim, size in enumerate(exported.in_avals[index].shape):
            if not isinstance(size, int):
                symbols[position, dim] = _evaluator(size)
    module = refine(module, dims=dims or {}, where=where, names=symbols or None)
    return from_module(module, name=name, source=where, sha256=digest)


def _evaluator(size: Any) -> Callable[[Mapping[str, int]], int]:
    """A symbolic size such as `2*b` as a function of its variables."""

    def evaluate(dims: Mapping[str, int]) -> int:
        names = sorted(str(v) for v in size._get_vars()) if hasattr(size, "_get_vars") else [str(size)]
        for variable in names:
            if variable not in dims:
                raise KeyError(variable)
        return int(size._evaluate({variable: dims[variable] for variable in names}))

    return evaluate
