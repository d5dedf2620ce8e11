"""Kernels as JSON: everything a kernel's cost depends on, in few characters, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from meshcast.base import InputError, UnsupportedError
from meshcast.lower import Kernel, KernelKind, Recency
from meshcast.workload import (
    Attention,
    Convolution,
    Factorisation,
    Gemm,
    Geometry,
    Indexed,
    Reduction,
    SortGeometry,
    Tensor,
    Transform,
    Window,
)

# By the name they have in a file.
GEOMETRIES: dict[
    str, type[Gemm | Convolution | Reduction | Indexed | Window | SortGeometry | Attention | Factorisation | Transform]
] = {
    "gemm": Gemm,
    "convolution": Convolution,
    "reduction": Reduction,
    "indexed": Indexed,
    "window": Window,
    "sort": SortGeometry,
    "attention": Attention,
    "factorisation": Factorisation,
    "transform": Transform,
}
MOST_RESULTS = 1 << 16  # of one kernel
_NAMES = {cls: name for name, cls in GEOMETRIES.items()}
# Of a kernel, what is neither a cost nor a name: values are numbers of the program they come from.
# Kernels of a framework's own code are refused: probes are XLA's.
LEFT_OUT = frozenset(
    {"reads", "operand_bytes", "rearranged", "sources", "location", "recomputed", "redundant_flops", "code"}
)
_SHAPED = frozenset(
    {
        "kind",
        "writes",
        "updates",
        "geometry",
        "picked",
        "flags",
        "ops",
        "shape",
        "pieces",
        "stored_bits",
        "halves",
        "recency",
    }
)  # written in a form of their own
_PLAIN = tuple(f.name for f in fields(Kernel) if f.init and f.name not in LEFT_OUT | _SHAPED)
_DEFAULTS = {"name": ""} | {f.name: f.default for f in fields(Kernel) if f.init and f.default is not MISSING}


def kernel_to_json(kernel: Kernel) -> dict[str, Any]:
    """A kernel without what has its default; of `writes` the number is kept, of `updates` whether there are any.

    Raises:
        UnsupportedError: It is a collective, whose cost is the network's, or a framework's own kernel.
    """
    if kernel.code is not None:
        raise UnsupportedError(f"{kernel.name} is a framework's own kernel, which has no form in a file")
    found: dict[str, Any] = {"kind": kernel.kind.value}
    for name in _PLAIN:
        value = getattr(kernel, name)
        if name not in _DEFAULTS or value != _DEFAULTS[name]:
            found[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    if kernel.writes:
        found["writes"] = len(kernel.writes)
    if kernel.updates:
        found["updates"] = True
    if kernel.flags:
        found["flags"] = sorted(kernel.flags)
    if kernel.ops:
        found["ops"] = list(kernel.ops)
    if kernel.shape:
        found["shape"] = list(kernel.shape)
    if kernel.pieces:
        found["pieces"] = list(kernel.pieces)
    if kernel.stored_bits:
        found["stored_bits"] = list(kernel.stored_bits)
    if kernel.halves is not None:
        found["halves"] = list(kernel.halves)
    if kernel.geometry is not None:
        found["geometry"] = _geometry_to_json(kernel.geometry)
    if kernel.picked is not None:
        found["picked"] = _geometry_to_json(kernel.picked)
    if kernel.recency is not None:
        kept = [kernel.recency.kept] if kernel.recency.kept else []
        found["recency"] = [kernel.recency.reads, kernel.recency.written, *kept]
    return found


def _geometry_to_json(geometry: Geometry) -> dict[str, Any]:
    name = _NAMES.get(type(geometry))  # type: ignore[arg-type]
    if name is None:
        raise UnsupportedError(f"a profile has no place for a {type(geometry).__name__.lower()}")
    values = {f.name: getattr(geometry, f.name) for f in fields(geometry)}
    if isinstance(geometry, Indexed):
        values["table"] = [geometry.table.shape, geometry.table.dtype]
    return {"is": name, **values}


def kernel_from_json(value: dict[str, Any]) -> Kernel:
    """The kernel that `kernel_to_json` wrote: one with an equal `cost_key` and as many results.

    Raises:
        InputError: It has a field that kernels do not have: another version wrote it.
    """
    rest = dict(value)
    try:
        return Kernel(
            kind=KernelKind(rest.pop("kind")),
            writes=tuple(range(_count(rest.pop("writes", 0)))),
            updates=(0,) if rest.pop("updates", False) else (),
            flags=frozenset(rest.pop("flags", ())),
            ops=tuple(rest.pop("ops", ())),
            shape=tuple(rest.pop("shape", ())),
            pieces=tuple(rest.pop("pieces", ())),
            stored_bits=_bits(rest.pop("stored_bits", ())),
            halves=_halves(rest.pop("halves")) if "halves" in rest else None,
            geometry=_geometry_from_json(rest.pop("geometry")) if "geometry" in rest else None,
            picked=_picked(rest.pop("picked")) if "picked" in rest else None,
            recency=_recency(rest.pop("recency")) if "recency" in rest else None,
            name=rest.pop("name", ""),
            **_typed(Kernel, rest),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(
            f"a kernel that this version cannot read: {error}", fix="lower it again: meshcast calibrate --relower FILE"
        ) from error


def _bits(value: Any) -> tuple[int, ...]:
    """Bits of a product's two operands, or nothing."""
    found = _tuples(value)
    if not _wholes(found) or len(found) not in (0, 2) or not all(found):
        raise ValueError(f"operands of {value!r} bits")
    return tuple(found)


def _halves(value: Any) -> tuple[int, int]:
    """Bytes of f16 that a kernel reads and writes."""
    found = _tuples(value)
    if not _wholes(found) or len(found) != 2 or min(found) < 0:
        raise ValueError(f"f16 of {value!r} bytes")
    read, written = found
    return read, written


def _picked(value: dict[str, Any]) -> Indexed:
    found = _geometry_from_json(value)
    if not isinstance(found, Indexed):
        raise ValueError(f"{value['is']!r} picks nothing")
    return found


def _recency(value: list[Any]) -> Recency:
    reads, written, *kept = value
    if not _whole(written):
        raise ValueError(f"an age of {written!r}")
    return Recency(reads=_aged(reads), written=written, kept=_aged(kept[0]) if kept else ())


def _aged(value: Any) -> tuple[tuple[int, int], ...]:
    """Pairs of an age and the bytes of that age."""
    pairs = _tuples(value)
    if not isinstance(pairs, tuple) or not all(_wholes(pair) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"ages and bytes of {value!r}")
    return tuple(pairs)


def _geometry_from_json(value: dict[str, Any]) -> Geometry:
    rest = {name: _tuples(item) for name, item in value.items() if name != "is"}
    if value["is"] == "indexed":
        shape, dtype = rest["table"]
        rest["table"] = Tensor(shape, dtype)
    kind = GEOMETRIES[value["is"]]
    return kind(**_typed(kind, rest))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST_RESULTS:
        raise ValueError(f"{value!r} results")
    return value


def _typed(kind: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values, each number, flag or text of which is of its field's type, and each number finite and not below zero.

    Raises:
        ValueError: One is not.
    """
    for field in fields(kind):
        wanted = _TYPES.get(str(field.type))
        value = values.get(field.name)
        if value is not None and wanted is not None and not wanted(value):
            raise ValueError(f"{field.name} is {value!r}, and must be {field.type}")
    return values


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _wholes(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_whole, value))


_TYPES: dict[str, Callable[[Any], bool]] = {
    "int": _whole,
    "float": lambda value: type(value) in (int, float) and 0 <= value < math.inf,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "tuple[int, ...]": _wholes,
}


def _tuples(value: Any) -> Any:
    """Lists as the tuples they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
