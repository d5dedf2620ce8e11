"""Matches summed over equal launches: what is printed, and what the JSON holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshcast.evidence.comparison.reality.matching import How, Match
from meshcast.evidence.comparison.reality.predicted import PredictedLaunch
from meshcast.evidence.comparison.reality.sources import Sources
from meshcast.evidence.profiler.classes import class_of
from meshcast.evidence.profiler.trace import MeasuredKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """A kernel as predicted and as measured: all of its launches in the step.

    Attributes:
        how: By what it was found on both sides; `missing`: predicted only, `extra`: measured only.
        kind: Its class, the prediction's where there are two.
        name: The predicted kernel.
        measured_name: The measured instruction, operator or kernel.
        location: Where in the program it comes from.
        source: The source line of that, where the program knows it.
        predicted_s, measured_s: Seconds of all its launches.
        predicted_launches, measured_launches: How many.
    """

    how: How
    kind: str
    name: str = ""
    measured_name: str = ""
    location: str = ""
    source: str = ""
    predicted_s: float = 0.0
    measured_s: float = 0.0
    predicted_launches: int = 0
    measured_launches: int = 0

    @property
    def difference_s(self) -> float:
        """Measured less predicted."""
        return self.measured_s - self.predicted_s

    @property
    def ratio(self) -> float | None:
        """Predicted over measured; None where one side has none."""
        return self.predicted_s / self.measured_s if self.measured_s and self.predicted_s else None

    def to_json(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "how": self.how,
            "class": self.kind,
            "predicted_kernel": self.name or None,
            "measured_kernel": self.measured_name or None,
            "op": self.location or None,
            "source": self.source or None,
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "difference_s": self.difference_s,
            "ratio": self.ratio,
            "predicted_launches": self.predicted_launches,
            "measured_launches": self.measured_launches,
        }


def match_class(match: Match, predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel]) -> str:
    """The class that both sides of a match count as: that of its longest predicted launch, else of the measured one."""
    if match.predicted:
        return max((predicted[i] for i in match.predicted), key=lambda launch: launch.seconds).kind
    return class_of(max((measured[j] for j in match.measured), key=lambda kernel: kernel.duration))


def kernel_rows(
    matches: Sequence[Match], predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel], sources: Sources
) -> tuple[KernelRow, ...]:
    """Rows by the size of their difference, the largest first."""
    groups: dict[tuple[object, ...], list[Match]] = {}
    for match in matches:
        kernel = predicted[match.predicted[0]].kernel if match.predicted else None
        other = measured[match.measured[0]] if match.measured else None
        key = (
            match.how,
            (kernel.name, kernel.location) if kernel is not None else None,
            (other.op or other.name, other.scope) if other is not None else None,
        )
        groups.setdefault(key, []).append(match)
    rows = [_row(group, predicted, measured, sources) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: -abs(row.difference_s)))


def _row(
    group: Sequence[Match], predicted: Sequence[PredictedLaunch], measured: Sequence[MeasuredKernel], sources: Sources
) -> KernelRow:
    own = [predicted[i] for match in group for i in match.predicted]
    others = [measured[j] for match in group for j in match.measured]
    other = max(others, key=lambda kernel: kernel.duration) if others else None
    return KernelRow(
        how=group[0].how,
        kind=match_class(group[0], predicted, measured),
        name=own[0].kernel.name if own else "",
        measured_name=(other.op or other.name) if other is not None else "",
        location=own[0].kernel.location if own else other.scope if other is not None else "",
        source=sources.of(own[0].kernel) if own else "",
        predicted_s=sum(launch.seconds for launch in own),
        measured_s=sum(kernel.duration for kernel in others),
        predicted_launches=len(own),
        measured_launches=sum(kernel.count for kernel in others),
    )
