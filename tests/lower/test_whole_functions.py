"""Functions that partitioning wrote out are one op again where a framework has one."""

from __future__ import annotations

import pytest

from meshcast.lower.rewriting import ValueTypes
from meshcast.lower.whole_functions import with_whole_functions
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
