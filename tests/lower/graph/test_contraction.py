"""Groups of ops contracted to one: circles found as by trying, an order as by sweeps, each op's reads asked for once."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence

import pytest

from benchmarks.programs_by_size import chain, layers, shared
from meshcast.lower import lower
from meshcast.lower.graph.contraction import Contraction, in_order
from meshcast.lower.graph.free_values import FreeValues
from meshcast.programs.files import from_bytes
from meshcast.workload import read_workload
from meshcast.workload.graph import Cost, Op, OpKind


def made(reads: Iterable[int], result: int) -> Op:
    return Op(name="op", cost=Cost(kind=OpKind.ELEMENTWISE), operands=tuple(reads), results=(result,))


def random_ops(seed: int, count: int = 24) -> list[Op]:
    draw = random.Random(seed)
    return [made({draw.randrange(max(0, i - 6), i) for _ in range(draw.randrange(3)) if i}, i) for i in range(count)]


def by_sweeps(ops: Sequence[Op]) -> list[Op] | None:
    """Sweeps over what is left, as long as one takes something."""
    here = {value for op in ops for value in op.results}
    ready: set[int] = set()
    found: list[Op] = []
    left = list(ops)
    while left:
        still: list[Op] = []
        for op in left:
            if all(value in ready or value not in here for value in op.operands):
                found.append(op)
                ready.update(op.results)
            else:
                still.append(op)
        if len(still) == len(left):
            return None
        left = still
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_sweeps(seed: int) -> None:
    ops = random_ops(seed)
    random.Random(seed).shuffle(ops)
    assert in_order(ops, FreeValues().reads, {}) == by_sweeps(ops)


def test_ops_that_need_each_other_have_no_order() -> None:
    assert in_order([made([1], 0), made([0], 1)], FreeValues().reads, {}) is None


@pytest.mark.parametrize("seed", range(40))
def test_groups_are_refused_exactly_where_they_make_a_circle(seed: int) -> None:
    """Each group is one op that reads what all of its members do: sweeps over those find a circle, or none."""
    ops = random_ops(seed)
    draw = random.Random(seed)
    graph = Contraction(ops, FreeValues().reads, {})
    groups: list[list[int]] = []
    for _ in range(8):
        taken = {member for group in groups for member in group}
        members = sorted(draw.sample(sorted(set(range(len(ops))) - taken), 3))
        chosen = graph.independent(members)
        if len(chosen) < 2:
            continue
        tried = [*groups, chosen]
        gone = {member for group in tried for member in group}
        merged = [
            Op(
                name="group",
                cost=Cost(kind=OpKind.ELEMENTWISE),
                operands=tuple({v for m in group for v in ops[m].operands}),
                results=tuple(group),
            )
            for group in tried
        ]
        possible = by_sweeps([*(op for i, op in enumerate(ops) if i not in gone), *merged]) is not None
        assert graph.contract(chosen) == possible
        if possible:
            groups = tried


def test_independent_members_are_chosen_in_order() -> None:
    """1 and 3 depend on 0; 2 on nothing."""
    ops = [made([], 0), made([0], 1), made([], 2), made([1], 3)]
    assert Contraction(ops, FreeValues().reads, {}).independent([0, 1, 2, 3]) == [0, 2]


@pytest.mark.parametrize("program", [chain, layers, shared])
def test_merging_asks_each_op_twice_at_most(program, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    asked = 0
    reads = FreeValues.reads

    def counting(self: FreeValues, op: Op) -> Collection[int]:
        nonlocal asked
        asked += 1
        return reads(self, op)

    monkeypatch.setattr(FreeValues, "reads", counting)
    workload = read_workload(from_bytes(program(700).encode(), name="program", where="test"))
    lower(workload)
    assert len(workload.body.ops) <= asked <= 2.5 * len(workload.body.ops)
