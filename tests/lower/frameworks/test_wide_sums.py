"""Gradients of half precision that are widened and added up by kernels of their own."""

from __future__ import annotations

from meshcast.lower import Kernel, KernelKind
from meshcast.lower.frameworks.wide_sums import with_wide_sums
from meshcast.lower.value_types import ValueTypes
from meshcast.workload.graph import Tensor
from tests.simulate.schedules import kernel, loop, schedule

LAYERS, WIDTH = 4, 1000
TOTAL, GRADIENT = Tensor((LAYERS, WIDTH), "f32"), Tensor((LAYERS, WIDTH), "bf16")
ONE_LAYER = Tensor((1, WIDTH), "bf16")


def adding(gradient: int, total: int, result: int, *, ops: tuple[str, ...] = ("convert", "add")) -> Kernel:
    """What adds a gradient to its sum in one kernel: all layers' are read, though one is alive at a time."""
    sizes = (GRADIENT.bytes, TOTAL.bytes)
    return Kernel(
        name="add", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=(gradient, total), operand_bytes=sizes,
        read_bytes=sum(sizes), writes=(result,), written_bytes=TOTAL.bytes, elements=LAYERS * WIDTH,
        ops=tuple(f"stablehlo.{op}" for op in ops),
    )  # fmt: skip


def test_a_sum_is_four_kernels_of_5_w_and_16_bytes_a_number() -> None:
    for kind in (GRADIENT, ONE_LAYER):
        values = ValueTypes([kind, TOTAL, TOTAL])
        made = with_wide_sums(schedule([adding(0, 1, 2)], (0, 1), (2,)), values)
        steps = [step for step in made.steps if isinstance(step, Kernel)]
        assert [step.ops[0].removeprefix("stablehlo.") for step in steps] == ["clear", "add", "convert", "add"]
        moved = sum(step.read_bytes + step.written_bytes for step in steps)
        assert moved == (5 * 2 + 16) * LAYERS * WIDTH
        clear, narrow, widen, wide = steps
        assert narrow.reads == (0, *clear.writes)
        assert (widen.reads, wide.reads) == (narrow.writes, (*widen.writes, 1))
        assert (wide.writes, made.outputs) == ((2,), (2,))


def test_what_adds_no_narrow_array_to_a_wide_one_is_left_alone() -> None:
    values = ValueTypes([TOTAL, TOTAL, TOTAL, GRADIENT])
    same_type = Kernel(
        name="add", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=(0, 1), operand_bytes=(TOTAL.bytes,) * 2,
        read_bytes=2 * TOTAL.bytes, writes=(2,), written_bytes=TOTAL.bytes, ops=("stablehlo.add", "stablehlo.convert"),
    )  # fmt: skip
    scaled = adding(3, 0, 2, ops=("convert", "multiply"))
    body = schedule([same_type, scaled, kernel([3], [2])], (0, 1, 3), (2,))
    assert with_wide_sums(body, values) == body


def test_loops_are_looked_through() -> None:
    values = ValueTypes([GRADIENT, TOTAL, TOTAL])
    inner = schedule([adding(0, 1, 2)], (0, 1), (2,))
    made = with_wide_sums(schedule([loop(inner, 3, [0, 1], [2])], (0, 1), (2,)), values)
    assert sum(count for each, count in made.walk() if each.ops == ("clear",)) == 3
