"""Measured kernels from the silicon tables: products that others timed, as rows to interpolate in.

Attention is left out: those tables time a serving framework's calls, with paged caches and some 10 us of other work, which
say little about the calls that XLA makes (`docs/accuracy-other-gpus.md`).

A table's latency holds the gap to the next call, and the clock that the power cap left a run of such calls. Both are taken
out with the reference model, as a prediction adds them again for the program as a whole:

    seconds = (latency - gap) / slowed,  slowed = t(settled clock) / t(full clock).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from meshcast.estimate.estimator import Clocks, Estimates
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.measurements.silicon_kernels import SiliconKernel, product_kernels
from meshcast.estimate.measurements.silicon_tables import product_table
from meshcast.estimate.power import settled_clock
from meshcast.estimate.profiled.interpolator import InterpolatorRow
from meshcast.hardware import Device

# Seconds after which the power limiter has settled: on H200 and B200 the rate of large products falls between runs of
# 20 and of 100 ms.
SETTLES = 0.05
MOST_CALLS = (
    1500  # of one table and type: the tables have some ten thousand, at steps that are small beside a family's length
)


def silicon_rows(device: Device, root: Path | None = None) -> list[InterpolatorRow]:
    """A device's measured products, thinned out evenly in the order of their FLOPs.

    Args:
        device: A device of the catalogue.
        root: The tables' folder; the installed package's by default.

    Raises:
        UnsupportedError: there are no tables of this device, or none at all.
    """
    calls = list(product_kernels(device, product_table(device.name, root=root)))
    return list(_rows(_thinned(calls), device))


def _thinned(calls: Sequence[SiliconKernel]) -> list[SiliconKernel]:
    """At most so many of each type."""
    found: list[SiliconKernel] = []
    for dtype in sorted({call.kernel.dtype for call in calls}):
        of_type = [call for call in calls if call.kernel.dtype == dtype]
        of_type.sort(key=lambda call: (call.kernel.matrix_flops, str(call.kernel.geometry)))
        count = min(len(of_type), MOST_CALLS)
        found += [of_type[(2 * step + 1) * len(of_type) // (2 * count)] for step in range(count)]
    return found


def _rows(calls: Sequence[SiliconKernel], device: Device) -> Iterator[InterpolatorRow]:
    if not calls:
        return
    estimates = GpuAnalytical().estimate([call.kernel for call in calls], device)
    for index, call in enumerate(calls):
        seconds = (call.seconds - estimates.gap) / slowdown_in_its_run(call, estimates, index, device)
        if seconds > 0:
            yield InterpolatorRow(kernel=call.kernel, seconds=seconds, program=str(call.kernel.geometry))


def slowdown_in_its_run(call: SiliconKernel, estimates: Estimates, index: int, device: Device) -> float:
    """How many times its time at the full clock a call takes in the run that its table's latency was taken from.

    Args:
        call: What was measured.
        estimates: The estimates that it is in.
        index: Its place there.
        device: What it ran on.
    """
    if estimates.draw is None:
        return 1.0
    draw = estimates.draw.one(index)
    clocks: Clocks = "sustained" if call.run_seconds > SETTLES else "burst"
    share = settled_clock(draw, np.ones(1), device, clocks, estimates.gap)
    return float(draw.times(share)[0]) / float(draw.time[0])
