"""Products that share an operand, merged into one: XLA's `dot_merger`.

`x Wq`, `x Wk`, `x Wv` become `x [Wq Wk Wv]`: the other operands are joined (by whoever computes them, in a copy of
their own, or by the product as it reads them), one product runs, and its readers take their slices. XLA merges two
products where the same operand stands on the same side, everything but the other operand's free dimension agrees, neither
leads to the other, and at least one of the two is small: its operands and result within
`xla_gpu_dot_merger_threshold_mb` together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from meshcast.base import copier
from meshcast.lower.graph.contraction import Contraction, in_order
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Cost, Gemm, Op, OpKind, Tensor

SMALL_BYTES = 64 << 20  # found by compiling pairs around it (XLA of jax 0.10 and 0.11): 63.8 MiB is merged, 64.6 is not
# The rows of a tile at the most, in XLA's Triton products. With no more rows than that every column of the joined operand
# is read once, so the product reads its parts where they lie; with more a library's product on a joined copy is faster.
_TILE_ROWS = 128


def merge_products(
    ops: Sequence[Op],
    values: ValueTypes,
    buffer: Mapping[int, int],
    reads: Callable[[Op], Collection[int]],
    apart: Set[int] = frozenset(),
) -> Sequence[Op]:
    """The ops with every group of mergeable products replaced by a join, one product and slices.

    Args:
        ops: Live ops of a block in order.
        values: Types, to which new values are added.
        buffer: What a view's value shows.
        reads: What an op reads, its blocks included.
        apart: Operands whose products are left alone: what they are made of is not joined.
    """
    groups: dict[tuple[int, int, int], list[int]] = {}  # by side, the shared operand and what must agree
    alike: dict[object, int] = {}  # what must agree, numbered
    numbers: dict[tuple[int, float], tuple[int, int]] = {}  # the same of both sides, by an op's cost and share
    for index, op in enumerate(ops):
        if op.cost.kind is not OpKind.GEMM:
            continue
        shape = op.cost.geometry
        if not isinstance(shape, Gemm) or shape.groups > 1 or len(op.operands) != 2:
            continue
        if apart and any(buffer.get(value, value) in apart for value in op.operands):
            continue
        share = _share(op)
        number = numbers.get((id(op.cost), share))
        if number is None:
            left, right = ((_common(shape, side), op.cost.orders, share) for side in (0, 1))
            number = alike.setdefault(left, len(alike)), alike.setdefault(right, len(alike))
            numbers[id(op.cost), share] = number
        for side in (0, 1):
            shared = buffer.get(op.operands[side], op.operands[side])
            groups.setdefault((side, shared, number[side]), []).append(index)
    candidates = [(key, members) for key, members in groups.items() if len(members) > 1]
    if not candidates:
        return ops
    graph = Contraction(ops, reads, buffer)
    merged: dict[int, list[Op]] = {}  # by the last member's place
    gone: set[int] = set()
    known: dict[tuple[int, ...], _Merger] = {}
    joins: dict[tuple[object, ...], int] = {}  # parts, views resolved, and how they lie -> what they are together
    for key, members in candidates:
        chosen = _mergeable([i for i in members if i not in gone], ops, graph, values)
        # Two groups may each need a member of the other first: the later one is then left as it is.
        if len(chosen) > 1 and graph.contract(chosen):
            made = _merged([ops[i] for i in chosen], key[0], values, known)
            merged[chosen[-1]] = _without_join(made, joins, buffer)
            gone.update(chosen)
    if not merged:
        return ops
    ordered = in_order(_replaced(ops, merged, gone), reads, buffer)
    assert ordered is not None  # no group has made a circle
    return ordered


def _without_join(made: list[Op], joins: dict[tuple[object, ...], int], buffer: Mapping[int, int]) -> list[Op]:
    """The same without a join of parts that were joined before: layers that share their weights do so once (XLA's hlo_cse)."""
    join, product, *slices = made
    if join.cost.kind is not OpKind.MOVE:
        return made
    (joined,), shape = join.results, product.cost.geometry
    assert isinstance(shape, Gemm)
    lies = product.operands.index(joined), shape.lhs_contracting_minor, shape.rhs_contracting_minor, shape.k
    known = joins.setdefault((*lies, *[buffer.get(value, value) for value in join.operands]), joined)
    if known == joined:
        return made
    operands = tuple([known if value == joined else value for value in product.operands])
    return [replace(product, operands=operands), *slices]


def _replaced(ops: Sequence[Op], merged: Mapping[int, list[Op]], gone: Set[int]) -> list[Op]:
    """The ops without those that are merged, and what they became in the place of the last of them."""
    made: list[Op] = []
    for index, op in enumerate(ops):
        if index in merged:
            made += merged[index]
        elif index not in gone:
            made.append(op)
    return made


def _common(shape: Gemm, side: int) -> Gemm:
    """What two products with the same operand on `side` must agree in: everything but the other's free dimension."""
    return replace(shape, n=0) if side == 0 else replace(shape, m=0)


def _share(op: Op) -> float:
    """The share of the op's work that is not the model's own: only products alike in that are merged."""
    return op.redundant_flops / op.cost.matrix_flops if op.cost.matrix_flops else 0.0


def _is_small(op: Op, values: ValueTypes) -> bool:
    return sum([values.tensors[value].bytes for value in (*op.operands, *op.results)]) <= SMALL_BYTES


def _mergeable(members: list[int], ops: Sequence[Op], graph: Contraction, values: ValueTypes) -> list[int]:
    """The members that become one product, in order: of two, one is small, and none leads to another."""
    if len(members) < 2 or not any(_is_small(ops[index], values) for index in members):
        return []
    chosen = graph.independent(members)
    return chosen if any(_is_small(ops[index], values) for index in chosen) else []


@dataclass(frozen=True, slots=True)
class _Merger:
    """What becomes of products that are alike, worked out once: costs, and the types of the new values.

    Attributes:
        in_place: Whether the product reads the parts where they lie, and nothing joins them.
        joined: The type of the parts as one operand.
        result: The type of all results as one.
        join: What joining the parts costs.
        product: What the one product costs.
        slices: What cutting each result out of the whole costs.
    """

    in_place: bool
    joined: Tensor
    result: Tensor
    join: Cost
    product: Cost
    slices: tuple[Cost, ...]


def _merged(members: Sequence[Op], side: int, values: ValueTypes, known: dict[tuple[int, ...], _Merger]) -> list[Op]:
    """The ops in place of products that share the operand on `side`; `known` has what was made of others."""
    tensors = values.tensors
    touched = [id(tensors[value]) for op in members for value in (*op.operands, *op.results)]
    key = (side, *[id(op.cost) for op in members], *touched)
    merger = known.get(key)
    if merger is None:
        merger = known[key] = _merger(members, side, tensors)
    lead = members[0]
    parts = tuple([op.operands[1 - side] for op in members])
    joined, result = values.add(merger.joined), values.add(merger.result)
    shared = lead.operands[side]
    others = parts if merger.in_place else (joined,)
    operands = (shared, *others) if side == 0 else (*others, shared)
    product = _as(lead, lead.name, merger.product, operands, (result,))
    slices = [
        _as(op, "stablehlo.slice", cost, (result,), op.results) for op, cost in zip(members, merger.slices, strict=True)
    ]
    if merger.in_place:
        return [product, *slices]
    return [_as(lead, "stablehlo.concatenate", merger.join, parts, (joined,)), product, *slices]


def _merger(members: Sequence[Op], side: int, tensors: Sequence[Tensor]) -> _Merger:
    lead = members[0]
    shape = lead.cost.geometry
    assert isinstance(shape, Gemm)
    parts = [tensors[op.operands[1 - side]] for op in members]
    shapes = [op.cost.geometry for op in members if isinstance(op.cost.geometry, Gemm)]
    free = sum(s.n if side == 0 else s.m for s in shapes)
    whole = replace(shape, n=free) if side == 0 else replace(shape, m=free)
    joined = Tensor((shape.batch, shape.k, free), parts[0].dtype)
    result = Tensor((whole.batch, whole.m, whole.n), tensors[lead.results[0]].dtype)
    in_place = (shape.m if side == 0 else shape.n) <= _TILE_ROWS
    others = parts if in_place else [joined]
    shared = tensors[lead.operands[side]]
    operands = (shared, *others) if side == 0 else (*others, shared)
    join = Cost(
        kind=OpKind.MOVE,
        dtype=joined.dtype,
        operand_bytes=tuple([part.bytes for part in parts]),
        written_bytes=joined.bytes,
    )
    product = replace(
        lead.cost,
        matrix_flops=sum(op.cost.matrix_flops for op in members),
        operand_bytes=tuple([operand.bytes for operand in operands]),
        written_bytes=result.bytes,
        geometry=whole,
    )
    sizes = [tensors[op.results[0]].bytes for op in members]
    slices = tuple(
        [Cost(kind=OpKind.SLICE, dtype=result.dtype, operand_bytes=(size,), written_bytes=size) for size in sizes]
    )
    return _Merger(in_place, joined, result, join, product, slices)


_as = copier(Op, "name", "cost", "operands", "results")
