"""Whether two fidelities put designs in the same order: rank correlations, and the pairs of devices that change places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from meshcast.evidence.rank_correlation import kendall, spearman

# Seconds by target and device.
Times = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Two devices that change places: `first` is faster than `second` in one fidelity and slower in the other.

    The leads are ratios above 1: the loser's time over the winner's, in each fidelity.
    """

    target: str
    fidelities: tuple[str, str]
    first: str
    second: str
    leads: tuple[float, float]

    @property
    def weight(self) -> float:
        """The smaller lead: near 1 the two are as good as equal in one of the fidelities."""
        return min(self.leads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two fidelities over the target-device pairs that both answer for; a figure is None where it is undefined.

    Attributes:
        fidelities: The pair.
        cells: How many target-device pairs both answer for.
        ratio: Geometric mean of the first's step time over the second's.
        spread: `exp(std(ln ratio))`: the factor by which single ratios lie off their mean; 1 is the same ratio
            everywhere, and then the order is the same too.
        spearman: Spearman's rank correlation over all those pairs.
        kendall: Kendall's tau-b over them.
        within: Mean over targets of Kendall's tau-b over the devices of one target. Programs of different sizes are
            easily put in order; whether the devices are is the harder question.
        device_pairs: Pairs of devices of one target that both put in an order, equal ones left out.
        swaps: Those among them that change places, the plainest first.
    """

    fidelities: tuple[str, str]
    cells: int
    ratio: float | None
    spread: float | None
    spearman: float | None
    kendall: float | None
    within: float | None
    device_pairs: int
    swaps: tuple[Swap, ...]

    def to_json(self) -> dict[str, Any]:
        """The object of the summary."""
        return {
            "fidelities": list(self.fidelities),
            "cells": self.cells,
            "ratio": self.ratio,
            "spread": self.spread,
            "spearman": self.spearman,
            "kendall": self.kendall,
            "kendall_within_targets": self.within,
            "device_pairs": self.device_pairs,
            "swaps": [asdict(swap) for swap in self.swaps],
        }


def agreement(fidelities: tuple[str, str], first: Times, second: Times) -> Agreement:
    """How two fidelities agree over what both answer for."""
    common = [key for key in first if key in second]
    pairs = [(first[key], second[key]) for key in common]
    if len(pairs) > 1:
        sides = [a for a, _ in pairs], [b for _, b in pairs]
        rho, tau = spearman(*sides), kendall(*sides)
    else:
        rho = tau = None
    logs = [math.log(a / b) for a, b in pairs]
    mean = math.fsum(logs) / len(logs) if logs else 0.0
    by_target: dict[str, list[str]] = {}
    for target, on in common:
        by_target.setdefault(target, []).append(on)
    ordered, swaps = _device_pairs(fidelities, by_target, first, second)
    taus = [
        found
        for target, devices in by_target.items()
        if len(devices) > 1
        and (found := kendall([first[target, on] for on in devices], [second[target, on] for on in devices]))
        is not None
    ]
    return Agreement(
        fidelities=fidelities,
        cells=len(common),
        ratio=math.exp(mean) if logs else None,
        spread=math.exp(math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / len(logs))) if logs else None,
        spearman=rho,
        kendall=tau,
        within=math.fsum(taus) / len(taus) if taus else None,
        device_pairs=ordered,
        swaps=tuple(sorted(swaps, key=lambda swap: -swap.weight)),
    )


def _device_pairs(
    fidelities: tuple[str, str], by_target: Mapping[str, list[str]], first: Times, second: Times
) -> tuple[int, list[Swap]]:
    """How many pairs of devices have an order in both fidelities, and those that have opposite ones."""
    ordered, swaps = 0, []
    for target, devices in by_target.items():
        for one, other in itertools.combinations(devices, 2):
            ratios = [times[target, other] / times[target, one] for times in (first, second)]
            if 1.0 in ratios:
                continue
            ordered += 1
            if (ratios[0] > 1) == (ratios[1] > 1):
                continue
            ahead, behind = (one, other) if ratios[0] > 1 else (other, one)
            leads = max(ratios[0], 1 / ratios[0]), max(ratios[1], 1 / ratios[1])
            swaps.append(Swap(target=target, fidelities=fidelities, first=ahead, second=behind, leads=leads))
    return ordered, swaps
