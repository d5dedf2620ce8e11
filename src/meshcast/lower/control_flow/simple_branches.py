"""Branches of two sides that cost little: both are computed, and their results selected from (XLA's conditional_simplifier).

A conditional keeps kernels apart, needs its operands in memory and waits for the host or a launch to choose; so XLA replaces it
where nothing on either side costs much: arithmetic on elements, reductions, broadcasts, joins, pads and slices, and products with
vectors, which are reductions by then (`TryRemoveConditional`, `instruction_is_expensive`). Selects are then fused like any
arithmetic. A side that only hands values on is cheaper than a select, and the conditional stays: but a constant among its results
counts as computed there, where XLA's importer sinks it. Only a truth value selects: of a number that a program clamps, even
between two sides, the conditional stays as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.lower.draft import BlockDraft
from meshcast.lower.graph.renamed_values import renamed_op
from meshcast.lower.products.vector_products import is_vector_product
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Block, Cost, Op, OpKind

_CHEAP = frozenset({OpKind.ELEMENTWISE, OpKind.REDUCE, OpKind.BROADCAST, OpKind.VIEW, OpKind.SLICE})
_JOINS = frozenset({"stablehlo.concatenate", "stablehlo.pad"})  # reversals are expensive
_CONSTANTS = frozenset({"stablehlo.constant"})  # counting up is expensive


def has_branches(draft: BlockDraft) -> bool:
    """Whether a block has branches."""
    return any(op.cost.kind is OpKind.BRANCH for op in draft.block.ops)


def select_of_branches(draft: BlockDraft) -> None:
    """`without_simple_branches`."""
    draft.block = without_simple_branches(draft.block, draft.values)


def without_simple_branches(block: Block, values: ValueTypes) -> Block:
    """The block with both sides of such branches, and selects, in the branches' places; they may have such branches in them."""
    makers = {value: op for op in block.ops for value in op.results}
    names: dict[int, int] = {}
    ops: list[Op] = []
    for op in block.ops:
        if names:
            op = renamed_op(op, names)
        if op.cost.kind is not OpKind.BRANCH:
            ops.append(op)
            continue
        selector = _selector(op, makers, values) if len(op.blocks) == 2 else None
        sides = [without_simple_branches(side, values) for side in op.blocks] if selector is not None else []
        if selector is None or not all([_is_simple(side, makers) for side in sides]):
            ops.append(op)
            continue
        first, second = sides
        ops += (*first.ops, *second.ops)
        truth, swapped = selector
        on_true, on_false = (first, second) if swapped else (second, first)
        for result, true, false in zip(op.results, on_true.outputs, on_false.outputs, strict=True):
            if true == false:
                names[result] = true
            else:
                ops.append(_select(op, truth, true, false, result, values))
    outputs = tuple([names.get(value, value) for value in block.outputs])
    return replace(block, ops=tuple(ops), outputs=outputs)


def _selector(branch: Op, makers: Mapping[int, Op], values: ValueTypes) -> tuple[int, bool] | None:
    """The truth value that chooses, and whether the first side is its true one; None where a number chooses."""
    if branch.name == "stablehlo.if":
        return branch.operands[0], True
    maker = makers.get(branch.operands[0])
    if maker is None or maker.name != "stablehlo.convert" or values.tensors[maker.operands[0]].dtype != "i1":
        return None
    return maker.operands[0], False


def _is_simple(side: Block, makers: Mapping[int, Op]) -> bool:
    """Whether a side computes something, and nothing that costs much."""
    constant = any(value in makers and makers[value].name in _CONSTANTS for value in side.outputs)
    return (bool(side.ops) or constant) and all(map(_is_cheap, side.ops))


def _is_cheap(op: Op) -> bool:
    return op.cost.kind in _CHEAP or op.name in _JOINS or op.name in _CONSTANTS or is_vector_product(op)


def _select(branch: Op, truth: int, true: int, false: int, result: int, values: ValueTypes) -> Op:
    tensor, read = values.tensors[result], (truth, true, false)
    cost = Cost(
        kind=OpKind.ELEMENTWISE,
        dtype=tensor.dtype,
        vector_flops=tensor.elements,
        operand_bytes=tuple([values.tensors[value].bytes for value in read]),
        written_bytes=tensor.bytes,
    )
    return replace(branch, name="stablehlo.select", cost=cost, operands=read, results=(result,), blocks=())
