"""jaxlib's MLIR, behind one module: contexts with every dialect we read, parsing with typed errors.

Only `jaxlib.mlir` is imported here, never `jax`: reading a file then costs a third of a second instead of two.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, func, mhlo, sdy, stablehlo

from meshcast.errors import InputError, UnsupportedError

__all__ = ["deserialize_portable", "func", "ir", "make_context", "parse", "sdy", "stablehlo", "to_bytecode"]


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
    for register in (sdy.register_dialect, mhlo.register_mhlo_dialect, chlo.register_dialect, stablehlo.register_dialect):
        register(context)
    return context


def parse(source: str | bytes, *, where: str) -> ir.Module:
    """The module in MLIR text or bytecode, or a typed error that names the line and the unknown op."""
    context = make_context()
    try:
        with context:
            return ir.Module.parse(source)
    except (ir.MLIRError, ValueError) as error:
        raise parse_error(str(error), where=where) from None


def deserialize_portable(data: bytes, *, where: str) -> ir.Module:
    """The module in a StableHLO portable artifact (VHLO bytecode of any version jaxlib still reads)."""
    context = make_context()
    try:
        with context:
            return stablehlo.deserialize_portable_artifact(context, data)
    except (ir.MLIRError, ValueError) as error:
        raise parse_error(str(error), where=where) from None


def to_bytecode(module: Any) -> bytes:
    """The module as MLIR bytecode, to hand to another process."""
    import io

    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


_UNKNOWN_OP = re.compile(r"(?:unregistered operation|unknown op|custom op) '([\w.$-]+)'|'([\w$]+\.[\w$.]+)' (?:op is unregistered|is unknown)")
_PLACE = re.compile(r'(?:"-"|<stdin>|"[^"]*"):(\d+):(\d+)')


def parse_error(message: str, *, where: str) -> InputError | UnsupportedError:
    """The user's error for a message of MLIR's parser."""
    place = _PLACE.search(message)
    if place:
        where = f"{where}:{place[1]}:{place[2]}"
    lines = [line.strip(" -") for line in message.splitlines() if "error:" in line] or message.splitlines()
    text = re.sub(r'^.*?error:\s*("-":\d+:\d+:)?\s*', "", lines[0] if lines else message).strip()
    unknown = _UNKNOWN_OP.search(message)
    if unknown:
        name = unknown[1] or unknown[2]
        return UnsupportedError(
            f"no reader knows the op '{name}' ({text})",
            where=where,
            fix="export the program as StableHLO (jax.jit(f).lower(...).as_text() or jax.export)",
        )
    if "version" in message.lower() or "vhlo" in message.lower():
        return InputError(
            f"the program's dialect version cannot be read by this jaxlib: {text}",
            where=where,
            fix="export it for an older target version, or install a newer jaxlib",
        )
    return InputError(f"not a valid MLIR module: {text}", where=where, fix="check that the file is complete StableHLO")
