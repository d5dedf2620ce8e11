"""Operands of products that have to be turned first, though an op of the program has just written them.

A library steps through an operand by one stride for its batch, one for its rows and one for what is summed over. So the
dimensions of each must lie together, in order (XLA's DotDecomposer makes one dimension of each, `MatrixLayout::For` asks
whether a layout serves). Arguments lie as they are written. A product writes (batch, rows, columns), or columns before rows
with its operands swapped, and arithmetic on that keeps its order; transposes and reshapes only rename. Where the order that
comes of this does not serve the next product, XLA turns the values in a kernel of its own, together with arithmetic before it:
queries, keys and values of attention, einsums over several dimensions, spectral transforms. Arithmetic is done in one order: of
two products that were written in different ones, one is turned (gradients of a softmax over grouped heads). Everything else is
written by its own kernel as its reader wants it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from meshcast.lower.layouts.fixed_orders import KnownOrders, atoms_of, is_tiled, serving_order
from meshcast.lower.layouts.memory_order import MemoryOrder, lies_together
from meshcast.lower.layouts.renaming_transposes import without_renamings
from meshcast.lower.value_types import LAID_OUT_ANEW, ValueTypes, moved
from meshcast.workload import Gemm, Op, OpKind

Order = tuple[int, ...]
# Of both operands, the dimensions of its batch, of its own rows or columns, and those that are summed over.
Parts = tuple[tuple[Order, ...], ...]


def with_turned_operands(
    ops: Sequence[Op],
    fixed: Set[int],
    values: ValueTypes,
    buffer: dict[int, int],
    views: dict[int, Op],
    transposed: Set[int],
    kept: Set[int],
) -> list[Op]:
    """The ops with a transpose before each product whose operand lies otherwise than a library can take it.

    Args:
        ops: The ops of a block, in order, without views.
        fixed: Values that lie as they are written.
        values: Types, to which new values are added.
        buffer: What a view's value shows; gets the views that transposes read, and transposes that only rename.
        views: The ops whose results are views; gets such transposes.
        transposed: Views of matrices that lie the other way round, which products are told elsewhere.
        kept: Values that are needed after the block.
    """
    known = KnownOrders(ops, fixed, values.tensors, views, buffer)
    left = without_renamings(ops, kept, known, buffer, views)
    turning = _Turning(values, buffer)
    for op in left:
        if op.cost.kind is OpKind.ELEMENTWISE and len(op.operands) > 1 and len(op.results) == 1:
            turning.made.append(_in_one_order(op, known, turning))
            continue
        if op.cost.kind is not OpKind.GEMM or not op.cost.parts or not isinstance(op.cost.geometry, Gemm):
            turning.made.append(op)
            continue
        shape = op.cost.geometry
        operands = list(op.operands)
        minor = [shape.lhs_contracting_minor, shape.rhs_contracting_minor]
        for side, dims in enumerate(_sorted_pairs(op, views)):
            value = operands[side]
            lying = known.of(value)
            if lying is None:
                continue
            parts = atoms_of(lying, dims)
            order = serving_order(lying, parts)
            if order is None and not is_tiled(lying, parts):
                operands[side], minor[side] = turning.turned(op, side, value, lying, parts)
            elif order and value not in transposed:
                minor[side] = order[-1] in parts[2]
        turning.made.append(_reading(op, shape, operands, minor))
    return turning.made


def _in_one_order(op: Op, known: KnownOrders, turning: _Turning) -> Op:
    """Arithmetic whose operands all lie as the one that it is done in the order of.

    What is computed of a value that was turned before is computed of that.
    """
    if turning.named:
        operands = tuple([turning.named.get(value, value) for value in op.operands])
        if operands != op.operands:
            op = replace(op, operands=operands)
            known.note(op)
    lead = known.deepest(op)
    if lead is None:
        return op
    wanted = known.of(lead)
    assert wanted is not None  # see `deepest`
    shape = known.tensors[op.results[0]].shape
    found: dict[int, int] = {}
    for value in op.operands:
        if value == lead or value in known.fixed or known.tensors[value].shape != shape:
            continue
        lying = known.of(value)
        if lying is None or _sizes_of_dims(lying) != _sizes_of_dims(wanted):
            continue
        atoms = dict(zip(_atoms(wanted), _atoms(lying), strict=True))
        order = tuple([atoms[atom] for atom in wanted.order])
        if order not in (lying.order, lying.swapped):
            found[value] = turning.arranged(op, value, lying, order, shape)
            known.follow(found[value], lead)
    return replace(op, operands=tuple([found.get(value, value) for value in op.operands])) if found else op


def _atoms(lying: MemoryOrder) -> list[int]:
    return [atom for dim in lying.dims for atom in dim]


def _sizes_of_dims(lying: MemoryOrder) -> list[list[int]]:
    return [[lying.sizes[atom] for atom in dim] for dim in lying.dims]


def _sorted_pairs(op: Op, views: Mapping[int, Op]) -> Parts:
    """The dimensions of both operands, those that are summed over in XLA's order (dot_dimension_sorter.cc).

    Pairs of them that follow each other in both operands and are in order in neither are put in order; not where an operand
    is transposed, as its dimensions have other numbers once the transpose is a part of the product.
    """
    (batch, rows, lhs), (other_batch, columns, rhs) = op.cost.parts
    if len(lhs) < 2 or list(lhs) == sorted(lhs) or list(rhs) == sorted(rhs):
        return op.cost.parts
    if any(max(dims) - min(dims) != len(dims) - 1 for dims in (lhs, rhs)):
        return op.cost.parts
    if any(value in views and views[value].cost.kind is OpKind.TRANSPOSE for value in op.operands[:2]):
        return op.cost.parts
    order = sorted(range(len(lhs)), key=lhs.__getitem__)
    lhs, rhs = tuple([lhs[at] for at in order]), tuple([rhs[at] for at in order])
    return ((batch, rows, lhs), (other_batch, columns, rhs))


def _reading(op: Op, shape: Gemm, operands: Sequence[int], minor: Sequence[bool]) -> Op:
    """The product of operands that lie so."""
    lhs, rhs = minor
    if list(operands) == list(op.operands) and (shape.lhs_contracting_minor, shape.rhs_contracting_minor) == (lhs, rhs):
        return op
    geometry = replace(shape, lhs_contracting_minor=lhs, rhs_contracting_minor=rhs)
    return replace(op, operands=tuple(operands), cost=replace(op.cost, geometry=geometry))


class _Turning:
    """Ops so far, and the turned versions of buffers among them: one that serves several products is made once."""

    def __init__(self, values: ValueTypes, buffer: dict[int, int]) -> None:
        self.made: list[Op] = []
        self.named: dict[int, int] = {}  # values that arithmetic has asked for in another order, and their names in it
        self._values, self._buffer = values, buffer
        self._versions: dict[
            tuple[int, tuple[int, ...]], dict[Order, int]
        ] = {}  # by a buffer and its atoms as they lie

    def turned(
        self, product: Op, side: int, value: int, lying: MemoryOrder, parts: Sequence[Sequence[int]]
    ) -> tuple[int, bool]:
        """A value in an order that a product takes, and whether it is summed over what is innermost then."""
        batch, own, summed = parts
        source, sizes, place, versions = self._as_it_lies(value, lying)
        places = [[place[atom] for atom in part] for part in parts]
        order = next((each for each in versions if lies_together(each, places)), None)
        if order is None:
            # As the program writes it where that serves, else (batch, rows, columns) (GpuLayoutAssignment::SetDotOperandLayout).
            order = tuple([place[atom] for atom in _atoms(lying)])
            if not lies_together(order, places):
                wanted = (*batch, *own, *summed) if side == 0 else (*batch, *summed, *own)
                order = tuple([place[atom] for atom in wanted])
            versions[order] = self._turn(product, source, sizes, order)
        return versions[order], order[-1] in places[2]

    def arranged(self, op: Op, value: int, lying: MemoryOrder, order: Order, shape: tuple[int, ...]) -> int:
        """A value of that shape with its atoms in an order."""
        source, sizes, place, versions = self._as_it_lies(value, lying)
        wanted = tuple([place[atom] for atom in order])
        if wanted not in versions:
            versions[wanted] = self._turn(op, source, sizes, wanted)
        named = self._values.new(shape, self._values.tensors[source].dtype)
        self._buffer[named] = versions[wanted]
        self.named[value] = named
        return named

    def _as_it_lies(
        self, value: int, lying: MemoryOrder
    ) -> tuple[int, tuple[int, ...], dict[int, int], dict[Order, int]]:
        """A value's buffer, the sizes of its atoms in memory, the place of each, and the versions of it that are made."""
        source = self._buffer.get(value, value)
        sizes = tuple([lying.sizes[atom] for atom in lying.order])
        place = {atom: at for at, atom in enumerate(lying.order)}
        return source, sizes, place, self._versions.setdefault((source, sizes), {})

    def _turn(self, product: Op, source: int, sizes: tuple[int, ...], order: Order) -> int:
        """The transpose of a buffer, of atoms as they lie."""
        values = self._values
        dtype = values.tensors[source].dtype
        view = values.new(sizes, dtype)
        self._buffer[view] = source
        target = values.new(tuple([sizes[atom] for atom in order]), dtype)
        transpose = moved(product, OpKind.TRANSPOSE, LAID_OUT_ANEW, view, target, values)
        cost = replace(transpose.cost, orders=(order,))
        self.made.append(replace(transpose, cost=cost, trip_count=1, equal=()))
        return target
