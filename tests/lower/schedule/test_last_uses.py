"""Ages of what kernels read: bytes moved since the last use, in steady state."""

from __future__ import annotations

import pytest

from meshcast.lower.kernel import Kernel, KernelKind, LoopStep, Schedule
from meshcast.lower.schedule.last_uses import LEAST, NEVER, rounded_age, with_recency
from meshcast.workload.graph import Tensor

MiB = 2**20
TENSORS = tuple(Tensor((MiB // 4 * size,), "f32") for size in (1, 1, 1, 1, 64))


def touch(name: str, reads: tuple[int, ...], writes: tuple[int, ...], **more: object) -> Kernel:
    sizes = tuple(TENSORS[value].bytes for value in reads)
    return Kernel(
        name=name, kind=KernelKind.LOOP_FUSION, dtype="f32", reads=reads, operand_bytes=sizes, writes=writes,
        read_bytes=sum(sizes), written_bytes=sum(TENSORS[value].bytes for value in writes), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def ages(schedule: Schedule) -> dict[str, tuple[tuple[int, int], ...]]:
    found = with_recency(schedule, TENSORS)
    return {kernel.name: kernel.recency.reads if kernel.recency else () for kernel, _ in found.walk()}


def test_a_lone_kernel_finds_what_the_run_before_left() -> None:
    schedule = Schedule(inputs=(0,), outputs=(1,), steps=(touch("only", (0,), (1,)),))
    assert ages(schedule) == {"only": ()}


def test_traffic_between_writing_and_reading_ages_a_value() -> None:
    """`b` is read right after it was written; `a` again after b's and the big one's traffic: 2 + 128 MiB."""
    schedule = Schedule(
        inputs=(0, 4), outputs=(3,),
        steps=(touch("first", (0,), (1,)), touch("next", (1,), (2,)), touch("big", (4,), (4,)), touch("last", (0,), (3,))),
    )  # fmt: skip
    found = ages(schedule)
    assert found["next"] == ((0, MiB),)
    assert found["last"] == ((rounded_age(130 * MiB), MiB),)
    assert found["first"] == ((rounded_age(0), MiB),)  # read last by the run before


def test_loops_are_in_steady_state() -> None:
    """An invariant operand was read in the turn before: the body's traffic ago, less the kernel that read it."""
    body = Schedule(inputs=(1,), outputs=(2,), steps=(touch("uses", (0, 1), (2,)), touch("big", (4,), (3,))))
    loop = LoopStep(label="while", body=body, trips=10, reads=(1,), writes=(2,))
    found = ages(Schedule(inputs=(0, 1, 4), outputs=(2,), steps=(loop,)))
    assert found["uses"] == ((rounded_age(65 * MiB), 2 * MiB),)


def test_a_slice_that_moves_every_turn_was_never_touched() -> None:
    part = Kernel(
        name="slice", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=(4,), operand_bytes=(MiB,), writes=(1,),
        read_bytes=MiB, written_bytes=MiB, flags=frozenset({"cold"}),
    )  # fmt: skip
    body = Schedule(inputs=(1,), outputs=(1,), steps=(part,))
    loop = LoopStep(label="while", body=body, trips=64, reads=(1,), writes=(1,))
    assert ages(Schedule(inputs=(1, 4), outputs=(1,), steps=(loop,)))["slice"] == ((NEVER, MiB),)


@pytest.mark.parametrize(
    ("age", "rounded"), [(0, 0), (LEAST - 1, 0), (2**20, 2**20), (1.1 * 2**20, 2**20), (2**40, NEVER)]
)
def test_ages_are_rounded_to_half_an_octave(age: float, rounded: int) -> None:
    assert rounded_age(age) == rounded
