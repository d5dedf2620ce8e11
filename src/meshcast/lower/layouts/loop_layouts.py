"""Layouts of what loops carry: stacked arrays whose slices a matrix product wants in another order.

XLA's layout assignment keeps arrays row-major until a dot says otherwise. A library takes an operand whose batch, row
and column dimensions each lie together, the batch not innermost; any other one it wants as (batch, rows, columns). A
dot's result is row-major, and a transpose of it only renames its dimensions, as does arithmetic after that. Inside a
loop these wishes reach the stacked array that the slice is cut from or written to: the whole loop carries it so. What
enters or leaves the program, or goes on to a loop with other wishes, is then transposed as a whole, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from meshcast.lower.products.vector_products import is_vector_product
from meshcast.lower.value_types import ValueTypes, moved
from meshcast.workload import Block, Op, OpKind, Tensor

Order = tuple[int, ...]  # dimensions longer than one, outermost first in memory, numbered as they are written

_TELLING = frozenset({OpKind.GEMM, OpKind.TRANSPOSE, OpKind.VIEW, OpKind.ELEMENTWISE, OpKind.SLICE, OpKind.UPDATE})


def with_laid_out_loops(ops: Sequence[Op], block: Block, values: ValueTypes, kept: set[int]) -> list[Op]:
    """The block's ops with a transpose wherever an array must be laid out anew for a loop, or after it."""
    plain = {value for op in ops if op.cost.kind is not OpKind.LOOP for value in op.operands} | kept
    fixed = set(block.inputs)  # lie as they are written; what an op of this block makes is written in any order
    lying: dict[int, tuple[int, Order]] = {}  # value -> the loop's own result, and how that lies
    made: list[Op] = []
    for op in ops:
        if op.cost.kind is not OpKind.LOOP:
            made.append(op)
            continue
        orders = _carried_orders(op.blocks[0], values.tensors)
        operands, results, after = list(op.operands), list(op.results), []
        for position, value in enumerate(op.operands[: len(op.results)]):
            wanted = orders.get(position)
            source, order = lying.get(value, (value, None))
            if wanted == order:
                operands[position] = source
            elif value in fixed or order is not None:
                tensor = values.tensors[value]
                operands[position] = values.new(tensor.shape, tensor.dtype)
                made.append(_transpose(op, source if wanted is None else value, operands[position], values))
        for position, wanted in orders.items():
            result = op.results[position]
            lying[result] = (result, wanted)
            if result in plain:
                tensor = values.tensors[result]
                results[position] = values.new(tensor.shape, tensor.dtype)
                lying[result] = (results[position], wanted)
                after.append(_transpose(op, results[position], result, values))
        fixed.update(op.results)
        made += [replace(op, operands=tuple(operands), results=tuple(results)), *after]
    return made


def _transpose(loop: Op, source: int, target: int, values: ValueTypes) -> Op:
    return replace(moved(loop, OpKind.TRANSPOSE, "stablehlo.transpose", source, target, values), trip_count=1)


def _carried_orders(body: Block, tensors: Sequence[Tensor]) -> dict[int, Order]:
    """How the loop carries its stacked arrays, by position; only those that do not lie as they are written."""
    telling = [op for op in body.ops if op.cost.kind in _TELLING]
    if not any(op.cost.orders for op in telling):
        return {}
    carried = {value: position for position, value in enumerate(body.inputs)}
    given = _given_orders(telling, tensors)
    wanted = _wanted_orders(telling, tensors)
    found: dict[int, Order] = {}
    for op in telling:
        kind = op.cost.kind
        if (kind is not OpKind.UPDATE and kind is not OpKind.SLICE) or op.operands[0] not in carried:
            continue
        buffer = op.operands[0]
        if kind is OpKind.UPDATE:
            part = op.operands[1]
            carried[op.results[0]] = carried[buffer]
        else:
            part = op.results[0]
        order = given.get(part) if kind is OpKind.UPDATE else None
        order = order or wanted.get(part)
        if order and carried[buffer] not in found and len(_sizes(tensors[buffer])) == len(_sizes(tensors[part])) + 1:
            found[carried[buffer]] = order
    return found


def _given_orders(ops: Sequence[Op], tensors: Sequence[Tensor]) -> dict[int, Order]:
    """Orders of values that are a product's transposed result, or arithmetic on one."""
    given: dict[int, Order] = {}
    products: set[int] = set()
    for op in ops:
        kind = op.cost.kind
        if kind is OpKind.ELEMENTWISE or kind is OpKind.VIEW:
            source = next((value for value in op.operands if value in given), None) if given else None
            if source is not None and op.results and _alike(source, op.results[0], tensors):
                given[op.results[0]] = given[source]
        elif kind is OpKind.GEMM:
            products.update(op.results)
        elif kind is OpKind.TRANSPOSE and op.cost.orders and op.operands[0] in products:
            # In memory the product's dimensions keep their order under their new numbers.
            taken = [dim for dim in op.cost.orders[0] if tensors[op.operands[0]].shape[dim] > 1]
            place = {dim: position for position, dim in enumerate(taken)}
            given[op.results[0]] = tuple([place[dim] for dim in sorted(taken)])
    return given


def _wanted_orders(ops: Sequence[Op], tensors: Sequence[Tensor]) -> dict[int, Order]:
    """Orders in which products want values that they read: the first reader's wish counts.

    A wish goes back through renamings, conversions and updates, which have one order for what they read and write, and
    forward again to other names of what it has reached.
    """
    wanted: dict[int, Order] = {}
    for op in reversed(ops):
        kind = op.cost.kind
        if kind is OpKind.GEMM and not is_vector_product(op):
            for value, order in zip(op.operands, op.cost.orders, strict=False):
                long = _in_memory(value, order, tensors)
                if list(long) != sorted(long):
                    ranks = {dim: rank for rank, dim in enumerate(sorted(long))}
                    wanted[value] = tuple([ranks[dim] for dim in long])
        elif kind is OpKind.VIEW and op.operands and len(op.results) == 1:
            source, result = op.operands[0], op.results[0]
            if result in wanted and _alike(source, result, tensors):
                wanted[source] = wanted[result]
        elif _has_one_order(op) and op.results[0] in wanted:
            wanted[op.operands[0]] = wanted[op.results[0]]
    for op in ops if wanted else ():
        if op.cost.kind is OpKind.VIEW and op.operands and len(op.results) == 1:
            source, result = op.operands[0], op.results[0]
            if source in wanted and result not in wanted and _alike(source, result, tensors):
                wanted[result] = wanted[source]
    return wanted


def _writes_into(op: Op) -> bool:
    """Whether an op writes parts of its one target: an update of a slice, or a scatter."""
    return (op.cost.kind is OpKind.UPDATE or op.cost.kind is OpKind.SCATTER) and len(op.results) == 1


def _has_one_order(op: Op) -> bool:
    """Whether an op writes its result as its first operand lies: an update of it, or a conversion."""
    return op.cost.kind is OpKind.UPDATE or (op.cost.kind is OpKind.ELEMENTWISE and len(op.operands) == 1)


def _alike(one: int, other: int, tensors: Sequence[Tensor]) -> bool:
    """Whether two values have the same dimensions, those of size one aside."""
    return _sizes(tensors[one]) == _sizes(tensors[other])


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple([size for size in tensor.shape if size > 1])


def with_laid_out_operands(
    ops: Sequence[Op], fixed: Set[int], values: ValueTypes, buffer: Mapping[int, int], kept: Set[int]
) -> list[Op]:
    """The ops with a transpose before each product whose operand lies otherwise than it wants, and cannot be helped.

    An argument lies as it is written: a batched product that wants its dimensions in another order has it transposed
    first, once for all products that want it so. What an op of the program computes is written as its reader wants it. An
    argument that is updated before products read it (a key or value cache) is transposed, then updated, and transposed
    back for whoever else reads the result: XLA makes the update a second time inside that transpose, from the same
    source, which is why the one in place is made on a copy. A scatter (every sequence's token at a place of its own) is
    made once, and its result is transposed back.

    Args:
        ops: The ops of a block, in order.
        fixed: Values that lie as they are written.
        values: Types, to which new values are added.
        buffer: What a view's value shows.
        kept: Values that are needed after the block.
    """
    updated = _updated_otherwise(ops, fixed, values, buffer, kept)
    turned: dict[tuple[int, Order], int] = {}
    made: list[Op] = []
    for op in ops:
        if op.results and op.results[0] in updated:
            made += updated[op.results[0]].ops
            continue
        if op.cost.kind is not OpKind.GEMM or not op.cost.orders:
            made.append(op)
            continue
        operands = list(op.operands)
        for position, (value, order) in enumerate(zip(op.operands, op.cost.orders, strict=False)):
            wanted = _in_memory(value, order, values.tensors)
            source = buffer.get(value, value)
            if source in updated and updated[source].order == wanted:
                operands[position] = updated[source].result
            elif list(wanted) != sorted(wanted) and source in fixed:
                if (source, wanted) not in turned:
                    tensor = values.tensors[value]
                    turned[source, wanted] = values.new(tensor.shape, tensor.dtype)
                    made.append(_transpose(op, value, turned[source, wanted], values))
                operands[position] = turned[source, wanted]
        made.append(op if operands == list(op.operands) else replace(op, operands=tuple(operands)))
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Updated:
    """An argument's update in the order that a product wants: its ops, that order, and the result in it."""

    ops: tuple[Op, ...]
    order: Order
    result: int


def _updated_otherwise(
    ops: Sequence[Op], fixed: Set[int], values: ValueTypes, buffer: Mapping[int, int], kept: Set[int]
) -> dict[int, _Updated]:
    """Updates of arguments whose result a product wants in another order, by that result; the first product's wish counts."""
    updates = {
        op.results[0]: op for op in ops if _writes_into(op) and buffer.get(op.operands[0], op.operands[0]) in fixed
    }
    wishes: dict[int, Order] = {}
    others = {buffer.get(value, value) for value in kept}
    for op in ops:
        orders = op.cost.orders if op.cost.kind is OpKind.GEMM else ()
        for position, value in enumerate(op.operands):
            source = buffer.get(value, value)
            if source not in updates:
                continue
            order = _in_memory(value, orders[position], values.tensors) if position < len(orders) else ()
            if list(order) != sorted(order) and wishes.setdefault(source, order) == order:
                continue
            others.add(source)
    found: dict[int, _Updated] = {}
    for result, order in wishes.items():
        op, tensor = updates[result], values.tensors[result]
        source, written = values.new(tensor.shape, tensor.dtype), values.new(tensor.shape, tensor.dtype)
        made = [
            _transpose(op, op.operands[0], source, values),
            replace(op, operands=(source, *op.operands[1:]), results=(written,)),
        ]
        if result in others:
            back = written if op.cost.kind is OpKind.SCATTER else source
            made.append(_transpose(op, back, result, values))
        found[result] = _Updated(ops=tuple(made), order=order, result=written)
    return found


def _in_memory(value: int, order: Sequence[int], tensors: Sequence[Tensor]) -> Order:
    """The order that a product wants, of the dimensions that are longer than one."""
    return tuple([dim for dim in order if tensors[value].shape[dim] > 1])
