"""What works take at least, by hand: kernels that follow the clock, exchanges beside them, and the clock that a cap leaves."""

from __future__ import annotations

import math
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshcast.base import Group
from meshcast.estimate import KernelFloor
from meshcast.jobs.least_times import _TurnGraph
from meshcast.jobs.least_work import Exchanged, LeastStep, LeastWork, PowerLimit
from meshcast.lower import Kernel, KernelKind, Schedule
from meshcast.workload import Collective, Gemm

LIMIT = PowerLimit(watts=100.0, window_s=0.0, power=2.0, variation=0.0)


def test_kernels_take_longer_at_a_lower_clock_and_exchanges_are_hidden_by_what_runs_beside_them() -> None:
    work = LeastWork(fixed_s=1.0, clocked_s=2.0, exchanges=(Exchanged(seconds=5.0, fixed_s=1.0, clocked_s=2.0),))
    assert work.seconds() == 1 + 2 + (5 - 3)
    assert work.seconds(0.5) == 1 + 4 + (5 - 5)
    assert work.beside(9.0).seconds() == 9.0
    assert LeastWork.from_json(asdict(work)) == work


def test_a_step_that_keeps_to_the_cap_runs_at_the_full_clock() -> None:
    step = LeastStep(works=((2, LeastWork(clocked_s=1.0, clocked_j=90.0)),))
    assert step.under(LIMIT, 1) == 2.0
    assert step.under(None, 1) == 2.0


def test_a_step_that_draws_more_runs_at_the_clock_at_which_its_joules_fit() -> None:
    """200 s^2 joules in 1 / s seconds of 100 watts: s^3 = 1/2."""
    step = LeastStep(works=((1, LeastWork(clocked_s=1.0, clocked_j=200.0)),))
    assert step.under(LIMIT, 1) == pytest.approx(2 ** (1 / 3), rel=1e-8)
    # Behind it a second in which nothing is drawn: the clock recovers, but not by as much as the second takes.
    longer = LeastStep(works=(*step.works, (1, LeastWork(fixed_s=1.0))))
    assert longer.under(LIMIT, 1) == 2.0


def test_the_clock_falls_no_further_than_the_lowest_and_all_wait_for_the_slowest() -> None:
    step = LeastStep(works=((1, LeastWork(clocked_s=1.0, clocked_j=1e6)),))
    assert step.under(LIMIT, 1) == 1 / 0.4
    varied = PowerLimit(watts=100.0, window_s=0.0, power=2.0, variation=0.01)
    slowest = 1 - 0.01 * math.sqrt(2 * math.log(8))
    assert step.under(varied, 8) == 1 / (0.4 * slowest)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fixed=st.floats(0, 2), clocked=st.floats(0.01, 2), joules=st.floats(0, 800), rest=st.floats(0, 2),
    more=st.floats(0, 1), share=st.floats(0.4, 1.0),
)  # fmt: skip
def test_no_clock_gives_less_and_more_work_never_takes_less(
    fixed: float, clocked: float, joules: float, rest: float, more: float, share: float
) -> None:
    """At any clock the seconds, or those over which the joules fit, are at least the bound; `rest` and `more` add to it."""
    work = LeastWork(fixed_s=fixed, clocked_s=clocked, clocked_j=joules)
    step = LeastStep(works=((1, work), (1, LeastWork(fixed_s=rest))))
    least = step.under(LIMIT, 1)
    assert least <= max(step.seconds(share), joules * share**2 / 100) * (1 + 1e-6) or share == 0.4
    assert LeastStep(works=(*step.works, (1, LeastWork(fixed_s=more)))).under(LIMIT, 1) >= least * (1 - 1e-6)
    assert LeastStep(works=((1 + more, work), step.works[1])).under(LIMIT, 1) >= least * (1 - 1e-6)


def _product(read: tuple[int, ...], wrote: int) -> Kernel:
    sides = Gemm(
        batch=1, m=64, n=64, k=64, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16", lhs_contracting_minor=True,
        rhs_contracting_minor=True,
    )  # fmt: skip
    return Kernel(
        name=f"product {wrote}", kind=KernelKind.GEMM, dtype="bf16", matrix_flops=2.0 * 64**3, reads=read, writes=(wrote,),
        geometry=sides,
    )  # fmt: skip


def _plain(read: tuple[int, ...], wrote: int) -> Kernel:
    return Kernel(
        name=f"plain {wrote}", kind=KernelKind.LOOP_FUSION, dtype="bf16", reads=read, writes=(wrote,), elements=wrote
    )


def _exchange(read: int, wrote: int) -> Kernel:
    group = Group(dims=((2, 1),), devices=2)
    told = Collective(kind="all_reduce", group=group, input_bytes=8, output_bytes=8)
    return Kernel(
        name=f"exchange {wrote}",
        kind=KernelKind.COLLECTIVE,
        dtype="bf16",
        reads=(read,),
        writes=(wrote,),
        geometry=told,
    )


def _block(schedule: Schedule, *, seconds: float = 4.0) -> _TurnGraph:
    """A body whose products take 10 seconds, other kernels 1, and exchanges so many."""
    run = SimpleNamespace(
        full_clock=SimpleNamespace(gap=0.0),
        network=SimpleNamespace(seconds=lambda _: seconds),
        options=SimpleNamespace(scheduling=SimpleNamespace(scheduler="latency-hiding")),
    )
    kernels = [step for step in schedule.steps if isinstance(step, Kernel) and step.collective is None]
    floors = {
        kernel.cost_key: KernelFloor(seconds=10.0 if kernel.kind is KernelKind.GEMM else 1.0) for kernel in kernels
    }
    return _TurnGraph.of(cast("Any", run), schedule, floors)


def test_what_is_between_products_counts_and_what_deals_with_weights_is_aside() -> None:
    """Value 0 is handed from turn to turn; 1 is a stack of weights, 9 one of gradients."""
    steps = (
        _plain((1,), 2),  # a slice of the weights
        _plain((0,), 3),  # what the turn before left, through which its products lead to this one's
        _product((2, 3), 4),
        _exchange(4, 5),
        _plain((5,), 6),
        _product((6, 2), 7),
        _plain((7,), 8),  # what becomes of a gradient
    )
    block = _block(Schedule(inputs=(0, 9), outputs=(7, 8), steps=steps))
    assert [place for place in range(len(steps)) if block.counted >> place & 1] == [1, 2, 3, 4, 5]
    assert block.least().seconds() == 10 + 10 + 1 + 1 + 4
    assert block.aside(fed=True).seconds() == block.aside(fed=False).seconds() == 1.0
    assert block.between().seconds() == 2.0


def test_an_exchange_is_hidden_by_products_that_need_it_not() -> None:
    """The second product can run beside the exchange, the third waits for it."""
    steps = (_product((0,), 2), _exchange(2, 3), _product((2,), 4), _product((3,), 5))
    block = _block(Schedule(inputs=(0,), outputs=(5,), steps=steps), seconds=12.0)
    assert block.least().seconds() == 3 * 10 + (12 - 10)
    assert _block(Schedule(inputs=(0,), outputs=(5,), steps=steps), seconds=4.0).least().seconds() == 30


def test_of_exchanges_beside_each_other_one_counts() -> None:
    steps = (_product((0,), 2), _exchange(2, 3), _exchange(2, 4), _product((3, 4), 5))
    assert _block(Schedule(inputs=(0,), outputs=(5,), steps=steps)).least().seconds() == 20 + 4
