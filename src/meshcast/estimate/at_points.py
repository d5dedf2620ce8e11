"""Kernels of a program on the devices of several points of a sweep: asked about all of them at once where the estimator can.

An estimator that says so (`answers_several`) works with columns of numbers (`base.column`) and answers for every point what it
answers for that point's device alone, to the last bit. The others are asked about each device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshcast.base import KeptBeside, OneByOneError
from meshcast.estimate.chain import check_estimates, estimate_kernels, place_of, unique_kernels
from meshcast.estimate.clock_columns import FullColumns, moving_data
from meshcast.estimate.estimator import Estimator
from meshcast.estimate.kernel_columns import KernelsByPoint, PointAnswers
from meshcast.estimate.known_answers import ChainAnswers, is_by_kernel
from meshcast.estimate.power import PowerLaw, Values
from meshcast.hardware import Device, devices_of
from meshcast.lower import CostKey, Kernel, LoweredProgram

_Answers = tuple[dict[CostKey, PointAnswers], dict[str, tuple[float, PowerLaw]]]
_ANSWERS: KeptBeside[_Answers] = KeptBeside(64)  # of devices that stand for several, of which the programs of a job ask


def kernels_at_points(
    lowered: LoweredProgram, device: Device, estimators: Sequence[Estimator], *, first_named: bool, values: Values
) -> KernelsByPoint:
    """Every compute kernel's answers on each of the devices that one stands for.

    Raises:
        UnsupportedError: No estimator answers for a kernel, or not the same at all points.
    """
    devices = devices_of(device)
    assert devices is not None
    if values == "random":
        try:
            return _at_once(lowered, device, devices, estimators, first_named=first_named)
        except OneByOneError:  # a number that this estimator reads otherwise than by arithmetic
            pass
    each = {
        one: estimate_kernels(lowered, one, estimators, first_named=first_named).holding(values)
        for one in dict.fromkeys(devices)
    }
    return KernelsByPoint.of_points([each[one] for one in devices])


def _at_once(
    lowered: LoweredProgram,
    device: Device,
    devices: Sequence[Device],
    estimators: Sequence[Estimator],
    *,
    first_named: bool,
) -> KernelsByPoint:
    unique = unique_kernels(lowered)
    asked = ChainAnswers(by_arithmetic=all(getattr(each, "by_arithmetic", False) for each in estimators))
    places = {place_of(kernel, devices[0], estimators, asked, first_named=first_named)[0] for kernel in unique.values()}
    if len(places) != 1 or any(kernel.code is not None for kernel in unique.values()):
        raise OneByOneError("several estimators answer")
    estimator = estimators[places.pop()]
    several = getattr(estimator, "answers_several", None)
    if not is_by_kernel(estimator) or several is None or not several(devices[0]):
        raise OneByOneError(f"{estimator.name} answers for one device at a time")
    kept, rules = _ANSWERS.of(device, (estimator,), lambda: ({}, {}))
    new = [kernel for key, kernel in unique.items() if key not in kept]
    if new:
        with np.errstate(divide="raise", invalid="raise"):
            gap, law = _ask(estimator, new, device, len(devices), kept)
        rules[estimator.name] = gap, law
    gap, law = rules[estimator.name]
    return KernelsByPoint.of_rows({key: kept[key] for key in unique}, gap, law, estimator.name)


def _ask(
    estimator: Estimator, kernels: Sequence[Kernel], device: Device, points: int, kept: dict[CostKey, PointAnswers]
) -> tuple[float, PowerLaw]:
    """Has an estimator answer for kernels that are new; the gap between kernels, and how power follows the clock."""
    found = estimator.estimate(kernels, device)
    draw = found.draw
    if draw is None:
        raise OneByOneError("no model knows how power follows the clock")
    check_estimates(found, (len(kernels), points), estimator.name)
    moves = moving_data(found.compute_time, found.memory_time, found.cores)
    full = FullColumns(
        time=found.time, low=found.low, high=found.high, compute_time=found.compute_time, memory_time=found.memory_time,
        core_time=found.cores, overhead=found.overhead, clocked=draw.clocked, dynamic_energy=draw.dynamic,
        static_energy=draw.static,
    )  # fmt: skip
    for row, kernel in enumerate(kernels):
        kept[kernel.cost_key] = PointAnswers(full.row(row), found.energy[row], moves[row])
    return found.gap, draw.law
