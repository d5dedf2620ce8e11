"""Updates of slices that are not done in place: XLA:GPU computes them inside the kernels that read them.

To XLA's fusion a `dynamic-update-slice` is a function of elements, `y[i] = u[i - s] if s <= i < s + n else x[i]`, that reads next
to nothing (HloCostAnalysis::HandleDynamicUpdateSlice counts the update alone): where all that reads it can be fused, it is
computed there, once for each reader, and neither the result nor a copy of the target is ever in memory. So a decoder that cuts
each layer's keys and values out of one array, sets a row and puts all of them together again works on no copy of any.

An update that stays a kernel is done in place, with two exceptions: elementwise arithmetic that makes its target for it alone is
computed in the same pass, over the whole target, and constants are written with the update in them. A target that is moved there
(a slice) is written first (InstructionFusion::ShouldFuseInPlaceOp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from meshcast.lower.fusion.rules import FUSIBLE_CONSUMERS, IN_PLACE
from meshcast.lower.graph.scatters import filled_values
from meshcast.workload import Op, OpKind, Tensor


def computed_updates(
    ops: Sequence[Op], operands: Sequence[tuple[int, ...]], live_out: Set[int], tensors: Sequence[Tensor]
) -> dict[int, Op]:
    """Updates that may be computed with what reads or leads to them, as passes over their whole result, by their place.

    Args:
        ops: A block's ops in order.
        operands: The operands of each op, views resolved.
        live_out: Values that are read after the block, or by blocks in it.
        tensors: Types of all values.
    """
    filled = filled_values(ops)
    readers: dict[int, list[tuple[int, int]]] = {}  # value -> places of ops, each with the operand's
    makers: dict[int, Op] = {}
    for index, (op, values) in enumerate(zip(ops, operands, strict=True)):
        for position, value in enumerate(values):
            readers.setdefault(value, []).append((index, position))
        makers.update(dict.fromkeys(op.results, op))
    found: dict[int, Op] = {}

    def takes_in(place: int, position: int) -> bool:
        kind = ops[place].cost.kind
        if kind in IN_PLACE and place not in found:
            return position >= len(ops[place].results)  # what it writes over is in memory
        return kind in FUSIBLE_CONSUMERS

    for index in range(len(ops) - 1, -1, -1):
        op = ops[index]
        if op.cost.kind is not OpKind.UPDATE:
            continue
        target, result = operands[index][0], op.results[0]
        maker = makers.get(target)
        arithmetic = (
            maker is not None
            and maker.cost.kind is OpKind.ELEMENTWISE
            and target not in live_out
            and len(readers[target]) == 1
        )
        read = readers.get(result)
        inside = result not in live_out and read is not None and all(takes_in(*reader) for reader in read)
        if target in filled or arithmetic or inside:
            found[index] = whole_update(op, tensors, reads_targets=target not in filled)
    return found


def done_in_place(
    updates: Set[int], ops: Sequence[Op], operands: Sequence[tuple[int, ...]], fusions: Mapping[int, Sequence[int]]
) -> set[int]:
    """Places of those updates that are kernels by themselves after all, with nothing that makes their targets.

    Args:
        updates: Places of updates that may be computed.
        ops: The block's ops, these updates among them as passes over their whole result.
        operands: The operands of each op, views resolved.
        fusions: Members of each kernel, by its root.
    """
    return {
        index
        for index in updates
        if index in fusions
        and ops[index].cost.operand_bytes[0]
        and not any(operands[index][0] in ops[member].results for member in fusions[index])
    }


def whole_update(op: Op, tensors: Sequence[Tensor], *, reads_targets: bool = True) -> Op:
    """An update or scatter as a pass over the whole of its results, which reads its targets' elements or has them at hand."""
    cost, whole = op.cost, tuple(tensors[value].bytes for value in op.results)
    return replace(
        op,
        cost=replace(
            cost,
            kind=OpKind.MOVE if cost.kind is OpKind.UPDATE else cost.kind,
            operand_bytes=(*(whole if reads_targets else (0,) * len(whole)), *cost.operand_bytes[len(whole) :]),
            written_bytes=sum(whole),
        ),
    )
