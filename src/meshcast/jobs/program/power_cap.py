"""The power cap on a step: the clock that it leaves, found with the step that runs at that clock, and its energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from meshcast.base import NumberColumn, PartedError, column_of, larger, raw, smaller
from meshcast.estimate import Array, Clocks, DrawByPoint, EstimatedKernels, PowerDraw, settled_clock
from meshcast.hardware import Device, devices_of
from meshcast.simulate import Executed, PointsRun, Rank

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
    if run.several is not None:
        return _settled_steps(run, run.several)
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
        share = settled_clock(draw, counts, run.device, run.options.estimate.clocks, rest)
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


def _settled_steps(run: Run, points: int) -> tuple[float, EstimatedKernels, Rank]:
    """The same of several points of a sweep: each tries the clocks that it would try alone, all at once.

    Raises:
        PartedError: Points go on in groups of their own.
    """
    full = kernels = run.full_clock
    rank = run.rank_with(full)
    if full.law is None:
        return 1.0, full, rank
    plan, clocks = run.simulator.plan, run.options.estimate.clocks
    assert isinstance(rank, PointsRun)
    draw, counts = _drawn(full, rank.executed_by_point(plan))
    devices = devices_of(run.device) or (run.device,)
    slowest = full.law.slowest(run.job_devices or run.devices)

    def at_all(number: Any) -> Array:
        return np.broadcast_to(raw(number), points).copy()

    rest = at_all(larger(0.0, run.paced_seconds(rank.length(plan).last) - draw.seconds(counts)))
    share, trying = np.ones(points), np.ones(points, dtype=bool)
    for turn in range(MOST_CLOCKS):
        places = np.flatnonzero(trying)
        found = np.array(draw.settled(counts, devices, clocks, rest[trying].tolist(), places.tolist()))
        whole = places[found == 1.0]
        if turn and len(whole):  # what was tried before would be told: these go as they do alone
            raise PartedError(np.isin(np.arange(points), whole))
        trying[whole] = False
        if not trying.any():
            break
        share[trying] = found[found != 1.0] * slowest
        kernels = full.at_clock(column_of(share))
        rank = run.rank_with(kernels)
        left = at_all(
            larger(0.0, run.paced_seconds(rank.length(plan).last) - draw.seconds(counts, NumberColumn(share)))
        )
        trying &= ~(left >= rest * (1 - ROUNDING))
        if not trying.any():
            break
        rest = np.where(trying, np.maximum(0.0, 2 * left - rest), rest)
    return column_of(share), kernels, rank


def _drawn(
    full: EstimatedKernels, executed: Sequence[tuple[Executed, npt.NDArray[np.int64] | None]]
) -> tuple[DrawByPoint, Array]:
    """What kernels draw at each point, and how often each runs, both in the order in which the point has them."""
    draws: list[DrawByPoint] = []
    for each, _ in executed:
        drawn = full.draw(each.computing)
        assert drawn is not None
        draws.append(DrawByPoint.alike(drawn) if isinstance(drawn, PowerDraw) else drawn)
    if len(executed) == 1:
        return draws[0], executed[0][0].counts
    places = [here for _, here in executed if here is not None]
    counts = np.empty((sum(map(len, places)), draws[0].time.shape[1]))
    for (each, _), here in zip(executed, places, strict=True):
        counts[here] = each.counts
    return DrawByPoint.in_orders(draws, places), counts


def capped_energy(joules: float, seconds: float, device: Device, clocks: Clocks) -> float:
    """Joules of a step, no more than the cap lets a device draw in its time.

    A model that knows no law of clocks cannot slow down, and would draw more. Short runs do draw more, and say so.
    """
    return joules if clocks == "burst" else smaller(joules, device.tdp_watts * seconds)
