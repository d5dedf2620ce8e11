"""Sums that only gradients need are left to the end of a step; those that an input's gradient needs are not."""

from __future__ import annotations

from meshcast.base.mesh import Mesh
from meshcast.lower.kernel import Kernel, KernelKind, LoopStep, Schedule
from meshcast.lower.overlap.deferred_sums import with_deferred_sums
from meshcast.workload.graph import Collective

GROUP = Mesh.of({"expert": 4}).group(("expert",))


def reduce(read: int, write: int) -> Kernel:
    collective = Collective(kind="all_reduce", group=GROUP, input_bytes=64, output_bytes=64)
    return Kernel(
        name="sum", kind=KernelKind.COLLECTIVE, dtype="f32", reads=(read,), writes=(write,), geometry=collective
    )


def plain(reads: tuple[int, ...], write: int) -> Kernel:
    return Kernel(name="op", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=reads, writes=(write,))


def test_what_only_gradients_need_is_deferred() -> None:
    steps = (reduce(0, 2), plain((2, 1), 3), reduce(1, 4), plain((4,), 5))
    left, found = with_deferred_sums(Schedule(inputs=(0, 1), outputs=(5, 3), steps=steps), frozenset({3}))
    assert [(kernel.writes, count) for kernel, count in found] == [((2,), 1)]
    assert [step.reads for step in left.steps] == [(0, 1), (1,), (4,)]  # what was reduced is read as it is
    assert left.outputs == (5, 3)


def test_a_loop_defers_what_it_hands_on_for_gradients_alone() -> None:
    """Carried: the input's gradient (10) and the sum of the weights' (11), of which each turn reduces its own."""
    body = Schedule(
        inputs=(10, 11),
        outputs=(13, 15),
        steps=(plain((10,), 12), reduce(12, 13), reduce(10, 14), plain((11, 14), 15)),
    )
    loop = LoopStep(label="layers", body=body, trips=3, reads=(0, 1), writes=(2, 3))
    left, found = with_deferred_sums(Schedule(inputs=(0, 1), outputs=(2, 3), steps=(loop,)), frozenset({3}))
    assert [(kernel.writes, count) for kernel, count in found] == [((14,), 3)]
    (inner,) = left.steps
    assert isinstance(inner, LoopStep)
    assert [step.reads for step in inner.body.steps] == [(10,), (12,), (11, 10)]


def test_nothing_is_deferred_where_all_results_are_needed() -> None:
    schedule = Schedule(inputs=(0,), outputs=(1,), steps=(reduce(0, 1),))
    assert with_deferred_sums(schedule, frozenset()) == (schedule, [])
