"""Types of a program's values, and the ops on new values that rewrites put beside those of the program.

New values are appended to the types; rewritten ops keep their results, so that readers need no change.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.base import copier
from meshcast.workload import Cost, Geometry, Op, OpKind, Tensor

# The name of a transpose that no program asks for: what it reads lies in one order, and is wanted in another.
LAID_OUT_ANEW = "layout.transpose"
# And that of a row which is computed once, though it could be on the way.
KEPT_ROW = "strides.multiply"
# And that of an array which a product's epilogue reads (`products.written_masks`).
WRITTEN_MASK = "masks.broadcast_in_dim"
# And that of a window of a prefix sum (`graph.prefix_sums`).
PREFIX_WINDOW = "prefix.reduce_window"
KERNELS_OF_THEIR_OWN = frozenset({KEPT_ROW, WRITTEN_MASK})


class ValueTypes:
    """Types of all values of a program; grows as rewrites introduce new ones."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)

    def new(self, shape: tuple[int, ...], dtype: str) -> int:
        """A new value."""
        return self.add(Tensor(shape, dtype))

    def add(self, tensor: Tensor) -> int:
        """A new value of a type that others may have: what is asked about it is worked out once for all of them."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1


def moved(
    origin: Op, kind: OpKind, name: str, operand: int, result: int, values: ValueTypes, read: int | None = None
) -> Op:
    """An op that only moves `operand` into `result`, placed where `origin` stands."""
    size = values.tensors[result].bytes
    source = values.tensors[operand]
    cost = Cost(
        kind=kind,
        dtype=source.dtype,
        operand_bytes=(source.bytes if read is None else read,),
        written_bytes=size,
    )
    return _as(origin, name, cost, (operand,), (result,), ())


def resized(
    op: Op, values: ValueTypes, *, operands: tuple[int, ...], results: tuple[int, ...], geometry: Geometry
) -> Op:
    """A copy of the op on other values: its bytes are counted anew, its work is unchanged."""
    tensors = values.tensors
    count = len(op.cost.operand_bytes)
    read = tuple([tensors[value].bytes for value in operands[:count]])
    written = sum([tensors[value].bytes for value in results])
    return _on(op, _sized(op.cost, read, written, geometry), operands, results)


# Long programs are rewritten op by op: these copy a thousand of them in the time in which `replace` copies a hundred.
_as = copier(Op, "name", "cost", "operands", "results", "blocks")
_on = copier(Op, "cost", "operands", "results")
_sized = copier(Cost, "operand_bytes", "written_bytes", "geometry")
