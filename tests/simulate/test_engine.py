"""Two streams by hand: overlap, exposure, dependencies, loops and branches; and the properties of any step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.estimate import estimate_kernels
from meshcast.estimate.chain import KernelEstimate
from meshcast.estimate.roofline import Roofline
from meshcast.hardware import load_device
from meshcast.lower import BranchStep, Kernel, Schedule, Step
from meshcast.network import plan_collective
from meshcast.simulate import Simulator, simulate
from meshcast.simulate.timeline import COMMUNICATION, Repeat
from tests.lower.programs import all_reduce_text, lower_text
from tests.network.clusters import FABRIC, NODE, cluster
from tests.simulate.schedules import Times, exchange, kernel, loop, program, run, schedule, update


def test_compute_runs_in_sequence() -> None:
    timeline = run(schedule([kernel([0], [1], 1), kernel([0], [2], 2)]))
    assert timeline.duration == 3
    assert timeline.breakdown.compute == 3
    assert timeline.energy == 4


def test_a_gap_lies_between_kernels_and_not_after_the_last() -> None:
    body = schedule([kernel([1], [2], 1), kernel([2], [3], 2)], inputs=(1,), outputs=(3,))
    timeline = run(schedule([kernel([0], [1], 1), loop(body, 3, [1], [4])]), gap=0.5)
    assert timeline.duration == 1 + 3 * 3 + 6 * 0.5  # seven kernels, six gaps
    assert timeline.breakdown.overhead == 3
    assert timeline.breakdown.total == timeline.duration


def test_equal_kernels_are_asked_about_once() -> None:
    asked: list[Kernel] = []

    class Counting(Times):
        def __getitem__(self, kernel: Kernel) -> KernelEstimate:
            asked.append(kernel)
            return super().__getitem__(kernel)

    links = [kernel([i], [i + 1], 3) for i in range(50)]
    longer = kernel([50], [51], 4)
    duration = Simulator(program(schedule([*links, longer]))).duration(Counting(), lambda k: 0.0)
    assert duration == pytest.approx(50 * 3 + 4)
    assert asked == [links[0], longer]


def both(body: Schedule, gap: float) -> float:
    """The duration, the same from the timeline and alone."""
    timeline = run(body, gap=gap)
    assert timeline.breakdown.total == pytest.approx(timeline.duration)
    assert timeline.breakdown.overhead >= 0
    assert Simulator(program(body)).duration(Times(gap=gap), wire_time) == timeline.duration
    return timeline.duration


def wire_time(k: Kernel) -> float:
    assert k.collective is not None
    return k.collective.input_bytes / 1000


def test_a_loop_without_trips_takes_no_time_and_no_gap() -> None:
    never = loop(schedule([kernel([1], [2], 1)], inputs=(1,), outputs=(2,)), 0, [0], [3])
    assert both(schedule([never]), gap=0.5) == 0
    assert both(schedule([kernel([0], [4], 1), never]), gap=0.5) == 1
    assert both(schedule([exchange([0], [4], 1), never]), gap=0.5) == 1


def test_no_gap_is_cut_off_communication() -> None:
    """The exchange is the last to end; the gap after the kernel beside it never mattered."""
    assert both(schedule([exchange([0], [1], 5), kernel([0], [2], 1)]), gap=0.5) == 5
    assert both(schedule([exchange([0], [1], 1.2), kernel([0], [2], 1)]), gap=0.5) == 1.2
    assert both(schedule([kernel([0], [1], 1), exchange([1], [2], 2)]), gap=0.5) == 3.5


def test_a_branch_without_kernels_has_no_gap_to_cut() -> None:
    sent, computed = schedule([exchange([0], [5], 4)]), schedule([kernel([0], [6], 1)])
    assert both(schedule([BranchStep(bodies=(sent, computed), reads=(0,), writes=(7,))]), gap=0.5) == 4


def test_a_kernel_that_takes_no_time_is_not_launched() -> None:
    assert both(schedule([kernel([0], [1], 1), kernel([1], [2], 0), kernel([2], [3], 1)]), gap=0.5) == 2.5


def test_an_update_in_place_waits_for_who_still_reads_the_old_value() -> None:
    """A buffer is sent for 5 s: it is overwritten after that, though the new value needs nothing of the exchange."""
    timeline = run(schedule([exchange([0], [1], 5), update(0, 2, 3, 1)], inputs=(0, 2)))
    assert timeline.duration == 6
    assert timeline.breakdown.exposed_communication == 5
    apart = run(schedule([exchange([0], [1], 5), update(4, 2, 3, 1)], inputs=(0, 2, 4)))
    assert apart.duration == 5


def test_independent_communication_is_hidden() -> None:
    """A 3 s product hides a 2 s exchange; what uses both comes after."""
    timeline = run(schedule([exchange([0], [1], 2), kernel([0], [2], 3), kernel([1, 2], [3], 1)]))
    assert timeline.duration == 4
    assert timeline.breakdown.exposed_communication == 0
    assert timeline.communication_busy == 2


def test_communication_beyond_the_work_is_exposed() -> None:
    timeline = run(schedule([exchange([0], [1], 5), kernel([0], [2], 3), kernel([1, 2], [3], 1)]))
    assert timeline.duration == 6
    assert timeline.breakdown.exposed_communication == 2
    assert timeline.breakdown.idle == 0


def test_a_collective_waits_for_its_operand() -> None:
    timeline = run(schedule([kernel([0], [1], 3), exchange([1], [2], 2), kernel([2], [3], 1)]))
    assert [(span.start, span.end) for span in timeline.spans] == [(0, 3), (3, 5), (5, 6)]
    assert timeline.breakdown.exposed_communication == 2


def test_work_that_comes_later_in_the_program_fills_the_wait() -> None:
    """[product, exchange, use of it, independent product]: the independent one runs while the exchange does."""
    steps = [kernel([0], [1], 1), exchange([1], [2], 2), kernel([2], [3], 1), kernel([0], [4], 2)]
    assert run(schedule(steps)).duration == 4


def test_a_ready_exchange_does_not_wait_behind_one_that_is_not() -> None:
    """Weights for the next layer are gathered while this layer computes, ahead of the sum of its result."""
    steps = [kernel([0], [1], 4), exchange([1], [2], 1), exchange([0], [3], 3), kernel([2, 3], [4], 1)]
    assert run(schedule(steps)).duration == 6


def test_a_loop_multiplies_exactly() -> None:
    body = schedule([exchange([10], [11], 2), kernel([10], [12], 3), kernel([11, 12], [13], 1)], [10], [13])
    once = run(body)
    timeline = run(schedule([loop(body, 7, [0], [1])]))
    assert timeline.duration == 7 * once.duration == 28
    assert timeline.breakdown.compute == 7 * once.breakdown.compute
    assert timeline.energy == 7 * once.energy
    assert timeline.communication_busy == 14


def test_a_loop_is_a_barrier_for_both_streams() -> None:
    body = schedule([kernel([10], [11], 1)], [10], [11])
    timeline = run(schedule([exchange([0], [1], 5), loop(body, 2, [0], [2]), exchange([0], [3], 1)]))
    assert timeline.duration == 5 + 2 * 1 + 1  # nothing beside the loop, wherever the exchanges go
    (repeat,) = [span for span in timeline.spans if not hasattr(span, "kernel")]
    others = [span for span in timeline.spans if span is not repeat]
    assert all(span.end <= repeat.start or span.start >= repeat.end for span in others)
    assert timeline.breakdown.total == pytest.approx(timeline.duration)


def test_a_branch_takes_the_costlier_side() -> None:
    short, long = schedule([kernel([0], [5], 1)]), schedule([kernel([0], [6], 4)])
    timeline = run(schedule([BranchStep(bodies=(short, long), reads=(0,), writes=(7,)), kernel([7], [8], 1)]))
    assert timeline.duration == 5
    assert timeline.breakdown.compute == 5


def test_an_empty_program_takes_no_time() -> None:
    assert run(schedule([])).duration == 0.0
    assert run(schedule([BranchStep(bodies=(), reads=(0,), writes=(1,))])).duration == 0.0


def constant(seconds: float) -> Callable[[Kernel], float]:
    return lambda _: seconds


def test_real_programs_overlap_what_their_data_allows() -> None:
    machine = cluster(NODE, FABRIC).for_devices(4)
    device = load_device("h100-sxm")
    for order in (("reduce", "multiply", "use"), ("multiply", "reduce", "use"), ("reduce", "use", "multiply")):
        lowered = lower_text(all_reduce_text(order))
        estimates = estimate_kernels(lowered, device, [Roofline()])
        (reduce,) = [k for k, _ in lowered.schedule.walk() if k.collective]
        product = next(estimates[k].time for k, _ in lowered.schedule.walk() if not k.collective)
        assert reduce.collective is not None
        wire = plan_collective(reduce.collective, machine).seconds
        timeline = simulate(lowered, estimates, constant(wire))
        assert timeline.duration == pytest.approx(max(product, wire) + product)


# Random programs: every step reads some earlier values; kinds and lengths are free.
STEPS = st.lists(
    st.tuples(st.sampled_from("kkkclu"), st.integers(0, 8), st.lists(st.integers(0, 30), min_size=1, max_size=2)),
    min_size=1, max_size=14,
)  # fmt: skip


Graph = list[tuple[str, int, list[int]]]


def build(graph: Graph) -> Schedule:
    steps: list[Step] = []
    newer: dict[int, int] = {}  # values that were overwritten, by what took their place

    def newest(value: int) -> int:
        return newest(newer[value]) if value in newer else value

    for index, (kind, seconds, sources) in enumerate(graph):
        reads = [newest(source % (index + 1)) for source in sources]
        if kind == "l":
            inner = [exchange([40], [41], seconds), kernel([40], [42], 2), kernel([41, 42], [43], 1)]
            steps.append(loop(schedule(inner, [40], [43]), 3, reads, [index + 1]))
        elif kind == "u":
            steps.append(update(reads[0], reads[-1], index + 1, seconds))
            newer[reads[0]] = index + 1
        else:
            make = kernel if kind == "k" else exchange
            steps.append(make(reads, [index + 1], seconds))
    return schedule(steps)


@settings(deadline=None, max_examples=80)
@given(STEPS, st.floats(1, 8), st.floats(1, 8), st.sampled_from([0.0, 0.3, 2.0]))
def test_faster_hardware_is_never_slower(graph: Graph, compute: float, network: float, gap: float) -> None:
    """Graham's anomalies cannot happen: orders do not depend on times."""
    body = build(graph)
    slow = run(body, gap=gap).duration
    assert run(body, compute=compute, gap=gap).duration <= slow * (1 + 1e-12)
    assert run(body, network=network, gap=gap).duration <= slow * (1 + 1e-12)
    assert run(body, compute=compute, network=network, gap=gap).duration <= slow * (1 + 1e-12)
    assert run(body, gap=gap / 2).duration <= slow * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_a_timeline_is_consistent(graph: Graph) -> None:
    body = build(graph)
    timeline = run(body)
    parts = timeline.breakdown
    assert min(parts.compute, parts.memory, parts.exposed_communication, parts.overhead, parts.idle) >= 0
    assert parts.total == pytest.approx(timeline.duration)
    work = sum(count * k.read_bytes / 1000 for k, count in body.walk() if not k.collective)
    wire = sum(count * k.collective.input_bytes / 1000 for k, count in body.walk() if k.collective)
    assert max(work, wire) - 1e-9 <= timeline.duration <= work + wire + 1e-9
    assert timeline.communication_busy == pytest.approx(wire)
    assert sum(count for _, count in timeline.walk()) == sum(count for _, count in body.walk())
    ends: dict[int, float] = {}
    for span in timeline.spans:
        reads = span.kernel.reads if hasattr(span, "kernel") else ()
        assert all(span.start >= ends.get(value, 0.0) for value in reads)
        if hasattr(span, "kernel"):
            ends.update(dict.fromkeys(span.kernel.writes, span.end))
    in_program_order = {id(step): position for position, step in enumerate(body.steps)}
    kernels = [span for span in timeline.spans if hasattr(span, "kernel")]
    for span in kernels:
        for target in span.kernel.updates:
            position = in_program_order[id(span.kernel)]
            earlier = [s for s in kernels if in_program_order[id(s.kernel)] < position and target in s.kernel.reads]
            assert all(reader.end <= span.start for reader in earlier)
    for stream in (COMMUNICATION, "compute"):
        spans = [s for s in timeline.spans if isinstance(s, Repeat) or s.stream == stream]
        assert all(a.end <= b.start + 1e-12 for a, b in itertools.pairwise(spans))


@settings(deadline=None, max_examples=50)
@given(STEPS)
def test_equal_input_gives_equal_output(graph: Graph) -> None:
    first, second = run(build(graph)), run(build(graph))
    assert first == second


@settings(deadline=None, max_examples=50)
@given(STEPS, st.integers(1, 9))
def test_n_equal_layers_cost_n_times(graph: Graph, trips: int) -> None:
    body = build(graph)
    layers = schedule([loop(replace(body, inputs=(0,), outputs=(1,)), trips, [0], [50])])
    assert run(layers).duration == pytest.approx(trips * run(body).duration)


@settings(deadline=None, max_examples=50)
@given(STEPS, st.sampled_from([0.0, 0.3, 2.0]))
def test_the_duration_alone_is_that_of_the_timeline(graph: Graph, gap: float) -> None:
    body = build(graph)
    assert Simulator(program(body)).duration(Times(gap=gap), wire_time) == run(body, gap=gap).duration
