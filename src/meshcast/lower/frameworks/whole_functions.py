"""Functions that were written out as arithmetic, as the one op that a framework has for each.

Partitioning writes CHLO's functions out (`chlo-legalize-to-stablehlo`, as Shardy has no rules for them): `erfc` becomes some
sixty ops on elements, which a compiler fuses again. A framework that runs op by op has a kernel for the function itself
(`gelu` of aten/src/ATen/native/cuda/ActivationGeluKernel.cu), and no tensor for any value on the way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from meshcast.lower.graph.scatters import filled_values
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Cost, Op, OpKind, element_work

_FEW = 3  # ops that are one function in any case: a conversion on either side


def with_whole_functions(
    ops: Sequence[Op], kept: Collection[int], values: ValueTypes, buffer: Mapping[int, int]
) -> list[Op]:
    """The ops with each function that was written out as one op; what only it read is left to be dropped.

    Args:
        ops: The ops of a block, in order.
        kept: Values that outlive the block, or that blocks in it read.
        values: Types of all values.
        buffer: What a view's value shows.
    """
    constants = filled_values(ops, buffer)
    groups = [group for group in _written_out(ops, constants, buffer) if len(group) > _FEW]
    if not groups:
        return list(ops)
    readers: dict[int, set[int]] = {}
    for place, op in enumerate(ops):
        for value in op.operands:
            readers.setdefault(buffer.get(value, value), set()).add(place)
    last: dict[int, Op] = {}
    dropped: set[int] = set()
    for group in groups:
        needed = _needed(group, ops, kept, readers, buffer)
        if len(needed) * 2 < len(group):
            last[group[-1]] = _whole(ops[group[0]], ops[group[-1]], constants, values, buffer)
            dropped.update(set(group[:-1]) - needed)
    return [last.get(place, op) for place, op in enumerate(ops) if place not in dropped]


def is_written_out(op: Op) -> bool:
    """Whether an op is a part of a function."""
    return op.cost.kind is OpKind.ELEMENTWISE and element_work(f"chlo.{_function(op)}") is not None


def _function(op: Op) -> str:
    return op.location.rpartition("/")[2]


def _written_out(ops: Sequence[Op], constants: Set[int], buffer: Mapping[int, int]) -> Iterator[list[int]]:
    """Places of the ops of each function: those of one location of which each reads the function's argument or one before."""
    group: list[int] = []
    known: set[int] = set()
    for place, op in enumerate(ops):
        if not is_written_out(op):
            continue
        read = {buffer.get(value, value) for value in op.operands} - constants
        if group and op.location == ops[group[0]].location and read <= known:
            group.append(place)
            known.update(op.results)
            continue
        if group:
            yield group
        group, known = [place], {*read, *op.results}
    if group:
        yield group


def _needed(
    group: Sequence[int],
    ops: Sequence[Op],
    kept: Collection[int],
    readers: Mapping[int, Set[int]],
    buffer: Mapping[int, int],
) -> set[int]:
    """Places of a function's ops that others read as well, a derivative's `exp(-x^2)` in `erfc`, and of what these read."""
    needed: set[int] = set()
    wanted: set[int] = set()
    for place in reversed(group[:-1]):
        op = ops[place]
        outside = any(value in kept or not readers.get(value, set()) <= set(group) for value in op.results)
        if outside or not wanted.isdisjoint(op.results):
            needed.add(place)
            wanted.update([buffer.get(value, value) for value in op.operands])
    return needed


def _whole(first: Op, last: Op, constants: Set[int], values: ValueTypes, buffer: Mapping[int, int]) -> Op:
    """The function as one op, from its argument to its result."""
    shown = {buffer.get(value, value): value for value in first.operands}
    arguments = tuple([value for of, value in shown.items() if of not in constants])
    result, function = values.tensors[last.results[0]], _function(first)
    work = element_work(f"chlo.{function}")
    assert work is not None
    cost = Cost(
        kind=OpKind.ELEMENTWISE,
        dtype=result.dtype,
        vector_flops=work.flops * result.elements,
        transcendentals=work.transcendentals * result.elements,
        operand_bytes=tuple([values.tensors[value].bytes for value in arguments]),
        written_bytes=result.bytes,
    )
    return replace(last, name=f"chlo.{function}", cost=cost, operands=arguments)
