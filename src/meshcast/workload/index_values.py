"""Indices that a program computes of nothing but constants and numbers that count up: their values, worked out by NumPy.

How long updates of a small table take depends on how many of them fall on one row. Often that is data; often enough it is not:
buckets of relative positions follow from two positions, token types of single sentences are zeros, positions count up. What an
argument, a loop or a random number enters is not known, and neither is what an op makes that is not listed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxlib.mlir.dialects import stablehlo

from meshcast.programs import ir, symbol_of
from meshcast.workload.graph import Indexed
from meshcast.workload.rules.attributes import integer, integers

AnyArray = npt.NDArray[Any]
MOST_ELEMENTS = 1 << 22  # of a value that is worked out
MOST_OPS = 512  # that lead to it
MOST_BYTES = 1 << 30  # of all values that are held at once
LONGEST = 100  # of a chain of them: each is a few calls deep
MOST_ROWS = 4096  # of a table whose rows are told apart
FEW_ROWS, MANY = 64, 128  # rows of a table, and updates of each, from which on it is said what is assumed of them

_TYPES: Mapping[str, str] = {
    "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16",
    "ui32": "uint32", "ui64": "uint64", "f32": "float32", "f64": "float64", "f16": "float32", "bf16": "float32",
}  # fmt: skip
_COMPARED: Mapping[str, Callable[[AnyArray, AnyArray], AnyArray]] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., AnyArray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "negate": np.negative, "abs": np.abs, "sign": np.sign, "log": np.log, "log_plus_one": np.log1p, "exponential": np.exp,
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "power": np.power, "round_nearest_even": np.rint,
}  # fmt: skip
_FORWARDING = frozenset({"stablehlo.optimization_barrier", "sdy.sharding_constraint"})


class Frame(NamedTuple):
    """A body that is being read, whose arguments are the operands of an op."""

    block: Any
    operation: Any


class _UnknownError(Exception):
    """It depends on more than constants."""


def picked_counts(scatter: Any, frames: Sequence[Frame], functions: Mapping[str, Any]) -> tuple[int, ...] | None:
    """How often each row of a scatter's table is picked, the most frequent first; None where that is not known.

    Indices out of bounds pick no row: where all are, the answer is empty, and known.

    Args:
        scatter: The op.
        frames: The bodies that it stands in, the outermost first.
        functions: The module's functions by name.
    """
    dims = stablehlo.ScatterDimensionNumbers(scatter.attributes["scatter_dimension_numbers"])
    table = ir.ShapedType(scatter.operands[0].type).shape
    picked = [table[dim] for dim in dims.scattered_dims_to_operand_dims]
    rows = int(np.prod(picked, dtype=np.int64))
    if not picked or not 0 < rows <= MOST_ROWS or dims.input_batching_dims:
        return None
    try:
        indices = _Values(functions).of(scatter.operands[len(scatter.results)], tuple(frames))
    except (_UnknownError, ValueError, KeyError, TypeError):
        return None
    at = dims.index_vector_dim
    vectors = np.moveaxis(indices, at, -1) if at < indices.ndim else indices[..., None]
    vectors = vectors.reshape(-1, len(picked)).astype(np.int64)
    inside = np.all((vectors >= 0) & (vectors < np.array(picked)), axis=1)
    places = np.ravel_multi_index(tuple(vectors[inside].T), tuple(picked))
    counts = np.sort(np.bincount(places, minlength=1))[::-1]
    return tuple(int(count) for count in counts if count)


def few_rows_warning(shape: Indexed) -> str | None:
    """What is assumed of a scatter whose updates wait for each other; nothing where they do not, or hardly."""
    rows = shape.table.elements // max(1, math.prod(shape.slice_shape))
    narrow = shape.table.dtype in ("bf16", "f16")  # added by compare and swap, one at a time
    if not narrow or not 1 < rows <= FEW_ROWS or shape.count < MANY * rows:
        return None
    taken = f"zipf:{shape.skew:g}" if shape.skew else "spread evenly (--indices)"
    return (
        f"{shape.count:,} rows are added to a table of {rows} in {shape.table.dtype}: how many fall on one row is data, and "
        f"they wait for each other there; taken as {taken}. Where all fall on one (token types of single sentences), that "
        f"takes up to {rows} times as long or more"
    )


class _Values:
    """Values by NumPy; each op is worked out once for a body that it stands in."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._found: dict[tuple[Any, int], AnyArray] = {}
        self._ops = self._behind = self._bytes = 0

    def of(self, value: Any, frames: tuple[Frame, ...]) -> AnyArray:
        """A value's elements; raises `_UnknownError` where they are not known, or a chain of ops is too long."""
        if self._behind >= LONGEST:
            raise _UnknownError
        self._behind += 1
        found = self._of(value, frames)
        self._behind -= 1
        return found

    def _of(self, value: Any, frames: tuple[Frame, ...]) -> AnyArray:
        if isinstance(value.owner, ir.Block):
            if not frames or frames[-1].block != value.owner:
                raise _UnknownError
            return self.of(frames[-1].operation.operands[value.arg_number], frames[:-1])
        operation = value.owner.operation
        if operation.name in _FORWARDING or operation.name == "func.call":
            return self._forwarded(value, operation, frames)
        key = (value, len(frames))
        if key not in self._found:
            self._ops += 1
            shape = ir.ShapedType(value.type).shape
            if self._ops > MOST_OPS or np.prod(shape, dtype=np.int64) > MOST_ELEMENTS:
                raise _UnknownError
            with np.errstate(all="ignore"):
                found = self._worked_out(operation, value.type, frames)
            array = np.asarray(found)
            self._bytes += array.nbytes if array.base is None else 0  # others show those of another
            if self._bytes > MOST_BYTES:
                raise _UnknownError
            self._found[key] = array.reshape(shape)
        return self._found[key]

    def _forwarded(self, value: Any, operation: Any, frames: tuple[Frame, ...]) -> AnyArray:
        place = list(operation.results).index(value)
        if operation.name in _FORWARDING:
            return self.of(operation.operands[place], frames)
        block = self._functions[symbol_of(operation.attributes["callee"])].operation.regions[0].blocks[0]
        returned = block.operations[len(block.operations) - 1].operands[place]
        inner = _Values(self._functions)  # of one call: its arguments are others than the next one's
        inner._ops, inner._behind, inner._bytes = self._ops, self._behind, self._bytes
        found = inner.of(returned, (*frames, Frame(block, operation)))
        self._ops = inner._ops
        return found

    def _worked_out(self, operation: Any, kind: Any, frames: tuple[Frame, ...]) -> AnyArray:
        name = operation.name.rpartition(".")[2]
        shape, dtype = tuple(ir.ShapedType(kind).shape), _TYPES[str(ir.ShapedType(kind).element_type)]
        if name == "constant":
            return np.broadcast_to(np.array(operation.attributes["value"]).astype(dtype), shape)
        if name == "iota":
            along = integer(operation, "iota_dimension")
            count = np.arange(shape[along], dtype=dtype).reshape(
                [-1 if dim == along else 1 for dim in range(len(shape))]
            )
            return np.broadcast_to(count, shape)
        takes = [self.of(value, frames) for value in operation.operands]
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*takes).astype(dtype)
        match name:
            case "convert":
                return takes[0].astype(dtype)
            case "divide":
                return (np.trunc(takes[0] / takes[1]) if "int" in dtype else takes[0] / takes[1]).astype(dtype)
            case "remainder":
                return np.fmod(takes[0], takes[1])
            case "select":
                return np.where(*takes)
            case "clamp":
                return np.minimum(np.maximum(takes[1], takes[0]), takes[2])
            case "compare":
                direction = str(operation.attributes["comparison_direction"]).split()[-1].rstrip(">")
                return _COMPARED[direction](*takes)
            case "broadcast_in_dim":
                return _spread(takes[0], integers(operation, "broadcast_dimensions"), shape)
            case "reshape":
                return takes[0].reshape(shape)
            case "transpose":
                return takes[0].transpose(integers(operation, "permutation"))
            case "concatenate":
                return np.concatenate(takes, axis=integer(operation, "dimension"))
            case "slice":
                bounds = zip(
                    *(integers(operation, each) for each in ("start_indices", "limit_indices", "strides")), strict=True
                )
                return takes[0][tuple(slice(low, high, step) for low, high, step in bounds)]
        raise _UnknownError


def _spread(array: AnyArray, dims: Sequence[int], shape: Sequence[int]) -> AnyArray:
    wide = [1] * len(shape)
    for size, dim in zip(array.shape, dims, strict=True):
        wide[dim] = size
    return np.broadcast_to(array.reshape(wide), shape)
