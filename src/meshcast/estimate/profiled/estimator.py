"""Fidelity `profiled`: measured kernel times, interpolated between measured kernels of the same family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from meshcast.estimate.estimator import Array, Estimates, Origin, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.profiled.carried import SPREAD
from meshcast.estimate.profiled.features import family_of, place
from meshcast.estimate.profiled.interpolation import KernelFamily, predict
from meshcast.estimate.profiled.interpolator import Interpolator
from meshcast.estimate.profiled.reference import reference_model
from meshcast.estimate.profiled.sources import measured_kernels
from meshcast.estimate.roofline import light_bounds
from meshcast.hardware import Device
from meshcast.lower import Kernel

SAME = 1e-3  # distance below which a kernel is one that was measured
REACH = 2.0  # lengths beyond which nothing near was measured


class Profiled:
    """Measured kernels of a device; what lies between them is interpolated, with the interval that left-out rows had.

    Args:
        find: Gives a device's measured kernels; by default what meshcast or an installed package has of it.
        others: Gives those of other devices that stand in for families which were not measured on it (`carried.py`); by default
            none do.
    """

    name = "profiled"
    fidelity = "profiled"

    def __init__(
        self,
        find: Callable[[Device], Interpolator | None] = measured_kernels,
        others: Callable[[Device], Sequence[Interpolator]] | None = None,
    ) -> None:
        self._find = find
        self._others = others

    def _family(self, name: str, device: Device) -> tuple[KernelFamily | None, bool]:
        """A family, and whether it was measured on another device."""
        known = self._find(device)
        own = known.family(name) if known is not None else None
        if own is not None or self._others is None:
            return own, False
        return next((found for each in self._others(device) if (found := each.family(name)) is not None), None), True

    def _fixed(self, device: Device) -> float:
        known = self._find(device)
        return known.fixed_s if known is not None else 0.0

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Kernels of families that were measured on the device, or on others that stand in for it."""
        if self._find(device) is None and not (self._others and self._others(device)):
            return Support(level="no", reason=f"nothing was measured on {device.name}")
        if kernel.collective is not None:
            return Support(level="no", reason="collectives are timed by the network model")
        name = family_of(kernel, device)
        if self._family(name, device)[0] is None:
            return Support(level="no", reason=f"no {name} was measured on {device.name}")
        return reference_model(device, self._fixed(device)).supports(kernel, device)

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The reference model's time, and what measured kernels near by make of it."""
        name, where = place(kernel, device)
        family, carried = self._family(name, device)
        assert family is not None
        reference = reference_model(device, self._fixed(device)).estimate([kernel], device)
        answers = predict(family, np.array([where], dtype=np.float64))
        own = self.estimate([kernel], device)
        time, compute, memory = (float(c[0]) for c in (own.time, own.compute_time, own.memory_time))
        cores = float(own.cores[0])
        span = "|q s, c|" if carried else "q s"
        return Explanation(
            estimator=self.name,
            model=f"{name}, {own.origin[0].value}",
            formula="t = max(light, reference * exp(y)), y the mean of a Gaussian process given measured kernels",
            terms=(
                Term("reference model", "reference", float(reference.time[0]), "s"),
                Term("measured kernels of the family", "rows", len(family)),
                Term("distance of the nearest, in octaves", "d", float(answers.nearest[0])),
                Term("octaves over which times are alike", "l", family.length),
                Term("log ratio to the reference", "y", float(answers.y[0])),
                Term("its deviation", "s", float(answers.deviation[0])),
                Term("deviations that an interval spans", "q", family.quantile),
                *([Term("what differs between devices: measured on another", "c", SPREAD)] if carried else []),
                Term("speed of light", "light", float(light_beside([kernel], device, reference)[0]), "s"),
                Term("lower end", f"max(light, t exp(-{span}))", float(own.low[0]), "s"),
                Term("upper end", f"t exp({span})", float(own.high[0]), "s"),
            ),
            time=time,
            limited_by=limiting(compute, memory, float(own.overhead[0]), cores),
        )

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Interpolated times; what draws power and what limits a kernel is the reference model's word."""
        base = reference_model(device, self._fixed(device)).estimate(kernels, device)
        if not kernels:
            return base
        groups: defaultdict[str, list[int]] = defaultdict(list)
        places = [place(kernel, device) for kernel in kernels]
        for index, (name, _) in enumerate(places):
            groups[name].append(index)
        y, spread = np.zeros(len(kernels)), np.zeros(len(kernels))
        origin = list(base.origin)
        for name, members in groups.items():
            family, carried = self._family(name, device)
            assert family is not None, "kernels that are not supported"
            answers = predict(family, np.array([places[i][1] for i in members], dtype=np.float64))
            y[members] = answers.y
            spread[members] = np.hypot(answers.deviation * family.quantile, SPREAD if carried else 0.0)
            for i, distance in zip(members, answers.nearest, strict=True):
                if kernels[i].guessed:
                    continue
                far = carried or distance > REACH * family.length
                origin[i] = Origin.EXTRAPOLATED if far else Origin.MEASURED if distance < SAME else Origin.INTERPOLATED
        light = light_beside(kernels, device, base)
        time = np.maximum(base.time * np.exp(y), light)
        slower = time / np.maximum(base.time, 1e-12)
        cores = np.minimum(base.cores * slower, time)
        memory = np.minimum(base.memory_time * slower, time)
        draw = replace(base.draw, time=time) if base.draw is not None else None
        return replace(
            base,
            time=time,
            low=np.maximum(np.minimum(time * np.exp(-spread), time), np.minimum(light, time)),
            high=time * np.exp(spread),
            compute_time=np.minimum(base.compute_time * slower, time),
            core_time=cores,
            memory_time=memory,
            overhead=np.minimum(base.overhead * slower, time - np.maximum(cores, memory)),
            energy=draw.joules(1.0) if draw is not None else base.energy,
            origin=tuple(origin),
            draw=draw,
        )


def light_beside(kernels: Sequence[Kernel], device: Device, base: Estimates) -> Array:
    """What no kernel can be faster than; nothing on CPUs, whose rates are what programs reach and not bounds.

    On TPUs what stays in VMEM between kernels is not moved: the reference model's traffic is taken, at full bandwidth.
    """
    if device.kind == "cpu":
        return np.zeros(len(kernels))
    arithmetic, bytes_moved = light_bounds(kernels, device)
    if device.kind == "tpu":
        bytes_moved = np.minimum(bytes_moved, base.memory_time)
    light: Array = np.maximum(arithmetic / (device.clock_hz / device.peak_clock_hz), bytes_moved)
    return light
