"""Rewrites of a block before fusion: what XLA:GPU makes of single ops that no kernel runs as they are written.

New values are appended to the tensor types; rewritten ops keep their results, so that readers need no change.
Rewrites of schedules, after fusion, share the values, `only_fills` and `with_inner_blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshcast.base import copier
from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step
from meshcast.workload import Cost, Geometry, Op, OpKind, Tensor, element_bytes

# The name of a transpose that no program asks for: what it reads lies in one order, and is wanted in another.
LAID_OUT_ANEW = "layout.transpose"
# And that of a row which is computed once, though it could be on the way.
KEPT_ROW = "strides.multiply"
# And that of an array which a product's epilogue reads (`written_masks`).
WRITTEN_MASK = "masks.broadcast_in_dim"
# And that of a window of a prefix sum (`prefix_sums`).
PREFIX_WINDOW = "prefix.reduce_window"
KERNELS_OF_THEIR_OWN = frozenset({KEPT_ROW, WRITTEN_MASK})
TILE_BYTES = 64  # of either side that a block turns where elements are packed
WORD_BYTES = 4
FILLING = frozenset({"stablehlo.constant", "stablehlo.broadcast_in_dim"})
_COPIED = FILLING | {"copy"}  # of one filled value, for each loop's value that begins with it


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


def turns(op: Op, tensors: Sequence[Tensor]) -> bool:
    """Whether a transpose changes which of the dimensions that are not 1 is innermost."""
    if op.cost.kind is not OpKind.TRANSPOSE or not op.cost.orders:
        return False
    sizes = tensors[op.results[0]].shape
    order = op.cost.orders[0]
    if len(order) != len(sizes):
        return True
    inner = next((d for d in range(len(sizes) - 1, -1, -1) if sizes[d] > 1), None)
    return inner is not None and order[inner] != max(order[d] for d in range(len(sizes)) if sizes[d] > 1)


def fills_packed_tiles(op: Op, tensors: Sequence[Tensor]) -> bool:
    """Whether a transpose's sides are whole words and fill tiles of 64 bytes, of elements that are packed into words.

    Else XLA's GPU compiler turns them one by one. It tells where it can be asked, of 2 bits, as its code for tiles of those does
    not compile (14 shapes: sides of 128 and of 1000 elements compile, of 256 and 1008 do not).
    """
    result = tensors[op.results[0]]
    width, order = element_bytes(result.dtype), op.cost.orders[0] if op.cost.orders else ()
    if len(order) != len(result.shape) or width <= 0:
        return True
    sides: list[int] = []
    moved: list[int] = []  # the innermost dimension of each side, before it is moved
    for dim, size in zip(order, result.shape, strict=True):
        if moved and moved[-1] == dim - 1:
            sides[-1], moved[-1] = sides[-1] * size, dim
        else:
            sides.append(size)
            moved.append(dim)
    turned = sides[-1], sides[moved.index(max(moved))]
    return all(side >= TILE_BYTES / width and side % (WORD_BYTES / width) == 0 for side in turned)


def only_fills(step: Step, stacks: frozenset[int] | set[int]) -> bool:
    """Whether a step is a kernel that does nothing but fill some of these stacks, for loops to begin with."""
    return (
        isinstance(step, Kernel)
        and bool(step.writes)
        and stacks.issuperset(step.writes)
        and not FILLING.isdisjoint(step.ops)
        and _COPIED.issuperset(step.ops)
    )


def with_inner_blocks(step: Step, changed: Callable[[Schedule], Schedule]) -> Step:
    """A step with the blocks in it changed: the body of a loop, all of a branch's; a kernel has none, and stays as it is."""
    if isinstance(step, LoopStep):
        return replace(step, body=changed(step.body))
    if isinstance(step, BranchStep):
        return replace(step, bodies=tuple([changed(body) for body in step.bodies]))
    return step
