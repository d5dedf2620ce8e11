"""Fusions while they grow: what comes from outside, kept up to date; and each op looked at once as they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from benchmarks.programs_by_size import independent, shared
from meshcast.lower import lower
from meshcast.lower.fusion import growing_fusions as growing
from meshcast.lower.fusion.growing_fusions import Growing
from meshcast.lower.graph.reduction_stages import LONGEST, _parts
from meshcast.lower.products.matrix_products import is_plain
from meshcast.programs.files import from_bytes
from meshcast.workload import read_workload
from meshcast.workload.graph import Cost, Op, OpKind


def made(reads: tuple[int, ...], result: int, *, slow: bool = False) -> Op:
    cost = Cost(kind=OpKind.ELEMENTWISE, transcendentals=float(slow))
    return Op(name="op", cost=cost, operands=reads, results=(result,))


def is_even(value: int) -> bool:
    return value % 2 == 0


def is_odd(value: int) -> bool:
    return value % 2 == 1


def test_what_joins_is_outside_no_more() -> None:
    """4 = f(2, 3), 3 = g(1, 2): of even values 2 comes from outside, before and after; 3 only before; 1 only after."""
    fusion = Growing(made((2, 3), 4), (2, 3))
    joining = made((1, 2), 3, slow=True)
    assert (fusion.outside(0, is_even, joining, (1, 2)), fusion.outside(1, is_odd, joining, (1, 2))) == (1, 1)
    assert fusion.outside(1, is_odd, joining) == 0
    assert fusion.is_plain
    fusion.add(joining, (1, 2))
    assert not fusion.is_unary
    assert not fusion.is_plain
    assert fusion.outside(1, is_odd, made((0,), 1), (0,)) == 0


@pytest.mark.parametrize("fusion", ["compiler", "eager"])
@pytest.mark.parametrize("program", [independent, shared])
def test_fusing_looks_at_each_op_a_few_times(
    program: Callable[[int], str], fusion: Literal["compiler", "eager"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of many products is one fusion that each of them might join."""
    asked = 0

    def counting(op: Op) -> bool:
        nonlocal asked
        asked += 1
        return is_plain(op)

    monkeypatch.setattr(growing, "is_plain", counting)
    workload = read_workload(from_bytes(program(600).encode(), name="program", where="test"))
    lower(workload, fusion=fusion)
    assert asked <= 2 * len(workload.body.ops)
    # An eager framework has no epilogues; a sum of more values than a kernel can read is none.
    assert asked or fusion == "eager" or program is shared


def test_beyond_what_memories_hold_no_divisor_is_looked_for() -> None:
    """2^61 - 1 is a prime: among the 760 million numbers between half its root and the root none divides it."""
    assert _parts(2**62) == 2**31
    assert _parts(2**61 - 1) == 1_518_500_249
    assert _parts(99_991 * 99_989) == 99_989
    assert LONGEST < 2**61 - 1
