"""The power cap on a step: the clock that it leaves, found with the step that runs at that clock, and its energy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcast.base import larger, smaller
from meshcast.estimate import Array, Clocks, DrawByPoint, EstimatedKernels, PowerDraw, settled_clock
from meshcast.hardware import Device, devices_of
from meshcast.simulate import Rank

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

# Clocks that are tried for a step: the second mostly holds.
MOST_CLOCKS = 8
ROUNDING = 1e-9


def settled_step(run: Run) -> tuple[float, EstimatedKernels, Rank]:
    """The clock that the power cap leaves a step, as a share of the full one, with its kernels and its rank at that clock.

    What a step holds beside its kernels shrinks where these take longer: communication that was exposed is hidden then, and
    the average power of a step is above what its kernels and the rest at the full clock would have. So the clock is
    looked for again with what is left of the rest less what went of it, until the step has as much. Of steps that are
    tried only the length is worked out. Where several devices run a job it is the clock of the slowest, for which all wait.
    """
    full = kernels = run.full_clock
    rank = run.rank_with(full)
    if full.law is None:
        return 1.0, full, rank
    plan = run.simulator.plan
    executed = rank.executed(plan)
    draw, counts = full.draw(executed.computing), executed.counts
    assert draw is not None
    share, rest = 1.0, larger(0.0, run.paced_seconds(rank.length(plan).last) - draw.seconds(counts))
    for _ in range(MOST_CLOCKS):
        share = _settled(run, draw, counts, rest)
        if share == 1.0:
            break
        share *= full.law.slowest(run.job_devices or run.devices)
        kernels = full.at_clock(share)
        rank = run.rank_with(kernels)
        left = larger(0.0, run.paced_seconds(rank.length(plan).last) - draw.seconds(counts, share))
        if left >= rest * (1 - ROUNDING):
            break
        rest = larger(0.0, 2 * left - rest)
    return share, kernels if share != 1.0 else full, rank


def _settled(run: Run, draw: PowerDraw | DrawByPoint, counts: Array, rest: float) -> float:
    """The clock that the cap leaves, at each point where there are several."""
    clocks = run.options.estimate.clocks
    if isinstance(draw, DrawByPoint):
        devices = devices_of(run.device)
        assert devices is not None
        found: float = draw.settled(counts, devices, clocks, rest)
        return found
    return settled_clock(draw, counts, run.device, clocks, rest)


def capped_energy(joules: float, seconds: float, device: Device, clocks: Clocks) -> float:
    """Joules of a step, no more than the cap lets a device draw in its time.

    A model that knows no law of clocks cannot slow down, and would draw more. Short runs do draw more, and say so.
    """
    return joules if clocks == "burst" else smaller(joules, device.tdp_watts * seconds)
