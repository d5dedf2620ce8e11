"""Compute beside communication: slowed by the cores and the memory that collectives take, by hand; bounds; what is off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.estimate import KernelEstimate, Origin
from meshcast.hardware import load_device
from meshcast.hardware.device import CommunicationCores
from meshcast.simulate.contention import MOST_CORES, Contention, SpeedShares, Taken
from meshcast.simulate.network import Uncontended
from tests.simulate.schedules import Takes, exchange, kernel, run, schedule
from tests.simulate.test_channels import STEPS, Graph, build

H100 = load_device("h100-sxm")
FIFTH = Taken(cores=0.2, memory=0.0)


def estimate(arithmetic: float, traffic: float, overhead: float = 0.0) -> KernelEstimate:
    time = max(arithmetic, traffic) + overhead
    return KernelEstimate(
        time=time, low=time, high=time, compute_time=arithmetic, memory_time=traffic, overhead=overhead, energy=0.0,
        origin=Origin.ANALYTICAL, estimator="hand",
    )  # fmt: skip


def speeds(taken: Taken, compute: KernelEstimate | None) -> tuple[float, list[float]]:
    rates = SpeedShares(network=Uncontended(time=lambda _: 1.0), contention=Takes(taken))
    return rates.of(compute, [exchange([0], [1], 1)], [1.0])


def test_arithmetic_is_slowed_by_the_cores_that_are_taken() -> None:
    assert speeds(FIFTH, estimate(1, 0)) == (pytest.approx(0.8), [1])
    # Traffic of 0.9 s hides most of what the cores lack: 1 s becomes 1 / 0.8.
    assert speeds(FIFTH, estimate(0.7, 0.9)) == (1, [1])
    assert speeds(FIFTH, estimate(0.8, 0.9))[0] == pytest.approx(0.9 / 1)
    assert speeds(FIFTH, estimate(1, 0, overhead=1))[0] == pytest.approx(2 / 2.25)


def test_memory_is_shared_in_proportion() -> None:
    """A kernel that uses all of the memory beside a collective that uses a quarter: both at 1 / 1.25."""
    quarter = Taken(cores=0.0, memory=0.25)
    assert speeds(quarter, estimate(0, 1)) == (pytest.approx(0.8), [pytest.approx(0.8)])
    assert speeds(quarter, estimate(1, 0.75)) == (1, [1])
    assert speeds(quarter, None) == (1, [1])


def test_a_step_takes_longer_by_the_overlap() -> None:
    """While the exchange runs for 4 s, the kernel does 3.2 s of its 6; it ends at 6.8."""
    timeline = run(schedule([exchange([0], [1], 4), kernel([0], [2], 6)]), taken=FIFTH)
    assert timeline.duration == pytest.approx(6.8)
    assert timeline.slowdown.compute == pytest.approx(0.8)
    assert timeline.slowdown.communication == 0
    assert timeline.breakdown.compute == pytest.approx(6.8)
    assert timeline.breakdown.total == pytest.approx(timeline.duration)
    assert run(schedule([exchange([0], [1], 4), kernel([0], [2], 6)])).duration == 6


def test_a_gap_is_not_slowed() -> None:
    """1 s of kernel takes 1.25 s; the gap of 1 s behind it stays."""
    body = schedule([exchange([0], [1], 9), kernel([0], [2], 1), kernel([2, 1], [3], 1)])
    timeline = run(body, gap=1.0, taken=FIFTH)
    assert timeline.slowdown.compute == pytest.approx(0.25)
    assert timeline.breakdown.total == pytest.approx(timeline.duration) == 10


def test_what_a_collective_takes_of_a_device() -> None:
    """20 of 132 SMs for what NCCL's kernels carry out, 6 where the switches add; 2.5 bytes of memory a byte that an
    all-reduce sends.
    """

    def taken(in_network: bool = False, seconds: float = 1e-3) -> Taken:
        device = replace(H100, communication=CommunicationCores(cores=20, in_network_cores=6))
        return Contention(device=device, in_network=lambda _: in_network).taken(exchange([0], [1], 1000), seconds)

    sent = 1e6  # 2 (n - 1) / n of 1 MB, of two devices
    assert taken().cores == pytest.approx(20 / 132)
    assert taken(in_network=True).cores == pytest.approx(6 / 132)
    assert taken().memory == pytest.approx(2.5 * sent / 3.35e12 / 1e-3)
    assert taken(seconds=2e-3).memory == pytest.approx(taken().memory / 2)
    assert taken(seconds=1e-12).memory == 1


def test_no_cores_are_taken_where_engines_of_their_own_send() -> None:
    tpu = load_device("tpu-v5p")
    assert tpu.communication is None
    found = Contention(device=tpu, in_network=lambda _: False).taken(exchange([0], [1], 1000), 1e-3)
    assert found.cores == 0
    assert found.memory > 0


@settings(deadline=None, max_examples=60)
@given(STEPS, st.floats(0, MOST_CORES), st.floats(0, 1), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_contention_is_bounded(graph: Graph, cores: float, memory: float, shared: bool, gap: float) -> None:
    """Never faster than without; never slower than with everything at the least speed there can be."""
    body, taken = build(graph), Taken(cores=cores, memory=memory)
    free = run(body, gap=gap).duration
    timeline = run(body, gap=gap, taken=taken, shared=shared)
    assert timeline.duration >= free * (1 - 1e-12)
    # Compute kernels by hand have no traffic: cores slow them, two collectives at once take twice as many; memory and
    # the one link are shared by two at most.
    slowest = max(1 / (1 - min(MOST_CORES, 2 * cores)), 2.0 if shared else 1.0) * max(1.0, 2 * memory)
    # Without contention every block's end without its last gap is the least of all its orders, whichever was taken.
    blocks = 1 + sum(kind == "l" for kind, *_ in graph)
    assert timeline.duration <= (free * slowest + gap * blocks) * (1 + 1e-9)
    assert timeline.breakdown.total == pytest.approx(timeline.duration)
    assert timeline.slowdown.compute >= 0
    assert sum(each.exposed for each in timeline.groups) == pytest.approx(timeline.breakdown.exposed_communication)


@settings(deadline=None, max_examples=50)
@given(STEPS, st.sampled_from([1.0, 2.0, 8.0]))  # exact in binary: rounding could break ties between events otherwise
def test_everything_faster_by_a_factor_is_faster_by_it(graph: Graph, factor: float) -> None:
    body = build(graph)
    slow = run(body, taken=FIFTH, shared=True).duration
    assert run(body, taken=FIFTH, shared=True, compute=factor, network=factor).duration == pytest.approx(slow / factor)


@settings(deadline=None, max_examples=50)
@given(STEPS)
def test_taking_nothing_is_no_contention(graph: Graph) -> None:
    body = build(graph)
    nothing = run(body, taken=Taken(cores=0.0, memory=0.0))
    assert nothing.duration == pytest.approx(run(body).duration)
    assert nothing.slowdown.compute == nothing.slowdown.communication == 0
