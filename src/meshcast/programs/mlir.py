"""jaxlib's MLIR, behind one module: contexts with every dialect we read, parsing with typed errors.

Only `jaxlib.mlir` is imported here, never `jax`: reading a file then costs a third of a second instead of two.

Bytecode with bytes changed in place can abort the native reader (1 to 5 of 100 random changes) or make it ask for
memory without end, and so can some text: `probe` reads them in a child process before they are read here.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

# XLA's start-up notes ("device count: ...") are nothing to our users; its warnings and errors are. Read when jaxlib is loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, func, mhlo, sdy, stablehlo

from meshcast.base import MAX_NESTING, InputError, allow_nesting
from meshcast.programs.diagnostics import collected, parse_error

__all__ = [
    "deserialize_portable",
    "func",
    "ir",
    "make_context",
    "parse_module",
    "sdy",
    "stablehlo",
    "string_of",
    "symbol_of",
    "to_bytecode",
]

_CORRUPTED = "the file is damaged: copy it again"
SMALL_MODULE = 2**20  # characters or bytes


@functools.cache
def _registry() -> ir.DialectRegistry:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    stablehlo.register_stablehlo_passes()
    return registry


def make_context() -> ir.Context:
    """A fresh context with StableHLO, CHLO, MHLO, Shardy and the upstream dialects loaded (2 ms)."""
    context = ir.Context()
    context.append_dialect_registry(_registry())
    context.load_all_available_dialects()
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return context


@functools.cache
def _small_module_context() -> ir.Context:
    return make_context()


def context_for(source: str | bytes) -> ir.Context:
    """A context to read a module in: one for all small modules, which costs nothing to make; a fresh one for large ones.

    A context keeps every constant it has seen for as long as it lives: large modules must be able to take theirs along.
    """
    return _small_module_context() if len(source) <= SMALL_MODULE else make_context()


def parse_module(source: str | bytes, *, where: str) -> ir.Module:
    """The module in MLIR text or bytecode, or a typed error that names the line and the unknown op."""
    if isinstance(source, str):
        allow_nesting(_nesting(source), where=where)
    context = context_for(source)
    try:
        with context:
            return ir.Module.parse(source)
    except (ir.MLIRError, ValueError) as error:
        raise parse_error(str(error), where=where, source=source) from None
    except (RuntimeError, MemoryError) as error:  # corrupted bytecode asks for absurd sizes, or for text that is none
        raise InputError(f"not a valid MLIR module: {error}", where=where, fix=_CORRUPTED) from None


def _nesting(text: str) -> int:
    """How deep braces lie in each other, at the most: those of regions, of attributes and, rarely, of names."""
    if text.count("{") <= MAX_NESTING:
        return 0  # whatever it is, it is not too deep
    characters = np.frombuffer(text.encode(errors="replace"), dtype=np.uint8)
    steps = (characters == ord("{")).astype(np.int8) - (characters == ord("}")).astype(np.int8)
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0))


def deserialize_portable(data: bytes, *, where: str) -> ir.Module:
    """The module in a StableHLO portable artifact (VHLO bytecode of any version jaxlib still reads)."""
    context = make_context()
    with context, collected(context) as messages:
        try:
            return stablehlo.deserialize_portable_artifact(context, data)
        except (ir.MLIRError, ValueError) as error:
            raise parse_error("\n".join([*messages, str(error)]), where=where, source=data) from None
        except (RuntimeError, MemoryError) as error:
            raise InputError(f"not a valid portable artifact: {error}", where=where, fix=_CORRUPTED) from None


def operations(operation: Any) -> Iterator[Any]:
    """Every op below an op, outer ones before what they hold, in the order of the text."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def string_of(attribute: Any) -> str:
    """The text of a string attribute; bytes that are no UTF-8, which MLIR may hold, become replacement characters."""
    return bytes(ir.StringAttr(attribute).value_bytes).decode(errors="replace")


def symbol_of(attribute: Any) -> str:
    """The name that a symbol reference names, as `string_of` gives it of the symbol itself.

    Raises:
        InputError: It is no UTF-8, which the bindings cannot read.
    """
    reference = ir.FlatSymbolRefAttr(attribute)
    try:
        return str(reference.value)
    except (UnicodeDecodeError, RuntimeError):
        raise InputError(f"the symbol {reference} is not UTF-8", fix="rename the function") from None


def to_bytecode(module: Any) -> bytes:
    """The module as MLIR bytecode, to hand to another process."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()
