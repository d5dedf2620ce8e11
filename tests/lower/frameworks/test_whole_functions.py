"""Functions that partitioning wrote out are one op again where a framework has one."""

from __future__ import annotations

import pytest

from meshcast.lower.frameworks.whole_functions import with_whole_functions
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Cost, Op, OpKind, Tensor

WIDE = Tensor((64, 128), "f32")


def elementwise(place: str, operands: tuple[int, ...], result: int) -> Op:
    cost = Cost(kind=OpKind.ELEMENTWISE, dtype="f32", vector_flops=WIDE.elements, written_bytes=WIDE.bytes)
    return Op(name="stablehlo.multiply", cost=cost, operands=operands, results=(result,), location=place)


def chain(place: str, first: int) -> list[Op]:
    return [elementwise(place, (first, value), value + 1) for value in range(first, first + 6)]


def test_a_function_reads_its_argument_and_writes_its_result() -> None:
    """Six ops on 8,192 numbers, which are `erfc` with 62 FLOPs and a function a number."""
    made = with_whole_functions(chain("gelu/erfc", 0), {6}, ValueTypes([WIDE] * 7), {})
    assert [(op.name, op.operands, op.results) for op in made] == [("chlo.erfc", (0,), (6,))]
    assert (made[0].cost.vector_flops, made[0].cost.transcendentals) == (62 * 8192, 8192)
    assert (made[0].cost.operand_bytes, made[0].cost.written_bytes) == ((WIDE.bytes,), WIDE.bytes)


def test_what_others_read_of_it_stays() -> None:
    """The first of its six ops is read behind it as well: that one is computed for the other reader."""
    ops = [*chain("erfc", 0), elementwise("mul", (1, 6), 7)]
    made = with_whole_functions(ops, {7}, ValueTypes([WIDE] * 8), {})
    assert [(op.operands, op.results) for op in made] == [((0, 0), (1,)), ((0,), (6,)), ((1, 6), (7,))]


@pytest.mark.parametrize("place", ["mul", "abacus", ""])
def test_other_arithmetic_is_left_alone(place: str) -> None:
    ops = chain(place, 0)
    assert with_whole_functions(ops, {6}, ValueTypes([WIDE] * 7), {}) == ops


def test_two_functions_in_a_row_are_two() -> None:
    made = with_whole_functions([*chain("erfc", 0), *chain("erfc", 7)], {6, 13}, ValueTypes([WIDE] * 14), {})
    assert [(op.operands, op.results) for op in made] == [((0,), (6,)), ((7,), (13,))]


def made(kind: OpKind, operands: tuple[int, ...], result: int) -> Op:
    return Op(name="stablehlo", cost=Cost(kind=kind, dtype="f32"), operands=operands, results=(result,))


def test_an_argument_that_is_broadcast_is_none_of_the_constants() -> None:
    """0 is the block's own, and 1 is spread from it: that one is read, and what makes it stays."""
    spread = made(OpKind.BROADCAST, (0,), 1)
    joined = with_whole_functions([spread, *chain("erf", 1)], {7}, ValueTypes([WIDE] * 8), {})
    assert [(op.name, op.operands) for op in joined] == [("stablehlo", (0,)), ("chlo.erf", (1,))]
    assert joined[1].cost.operand_bytes == (WIDE.bytes,)


def test_constants_and_views_of_them_are_no_arguments() -> None:
    """A number (10), a view of it (11), that spread (12) and a view of this (13); the argument 0 is read as its view 14 too."""
    ops = [
        made(OpKind.GENERATE, (), 10),
        made(OpKind.BROADCAST, (11,), 12),
        elementwise("erf", (14, 13), 1),
        *[elementwise("erf", (value, 12, 0), value + 1) for value in range(1, 6)],
    ]
    joined = with_whole_functions(ops, {6}, ValueTypes([WIDE] * 15), {11: 10, 13: 12, 14: 0})
    assert [(op.name, op.operands) for op in joined[2:]] == [("chlo.erf", (14,))]
    assert joined[2].cost.operand_bytes == (WIDE.bytes,)
