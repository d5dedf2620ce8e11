"""Batch norms by a library: as much arithmetic as sums need, the same bytes."""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower import Kernel, KernelKind
from meshcast.lower.frameworks.channel_sums import with_channel_sums
from meshcast.lower.frameworks.library_norms import WORK, with_library_norms
from meshcast.lower.kernel import LoopStep
from meshcast.workload.graph import Reduction
from tests.simulate.schedules import kernel, loop, schedule

IMAGES = 2 * 32 * 28 * 28 * 64  # bytes


def summed(shape: tuple[int, ...], dims: tuple[int, ...], flops: float) -> Kernel:
    return replace(
        kernel([0, 1, 2], [3]), kind=KernelKind.REDUCTION, geometry=Reduction(shape=shape, dims=dims), vector_flops=flops,
        transcendentals=5.0, read_bytes=2 * IMAGES + 256, operand_bytes=(IMAGES, IMAGES, 256), written_bytes=256,
    )  # fmt: skip


def made(before: Kernel) -> Kernel:
    (step,) = with_library_norms(schedule([before], (0, 1, 2), (3,))).steps
    assert isinstance(step, Kernel)
    return step


def test_sums_over_pixels_have_a_library_s_arithmetic() -> None:
    """Two tensors of images are read: twice two operations at each of 25088 pixels and 64 channels."""
    before = summed((1, 25088, 64), (0, 1), 1e9)
    after = made(before)
    assert after.vector_flops == WORK * 2 * 25088 * 64
    assert after.transcendentals == 0
    assert (after.read_bytes, after.written_bytes) == (before.read_bytes, before.written_bytes)


def test_sums_that_are_no_norm_s_and_cheap_ones_stay() -> None:
    rows = summed((1, 25088, 64), (2,), 1e9)
    assert made(rows) == rows
    assert made(summed((1, 25088, 64), (0, 1), 10.0)).vector_flops == 10.0


def test_sums_in_loops_are_found_by_both_walks() -> None:
    inner = schedule([summed((1, 25088, 64), (0, 1), 1e9)], (0, 1, 2), (3,))
    outer = schedule([loop(inner, 4, (0, 1, 2), (3,))], (0, 1, 2), (3,))
    for walk in (with_library_norms, with_channel_sums):
        (step,) = walk(outer).steps
        assert isinstance(step, LoopStep)
        assert step.body == walk(inner) != inner
