"""`Reality`: one predicted step beside a measured one, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meshcast.base import VERSION
from meshcast.evidence.comparison.reality.evidence import Evidence, evidence_of
from meshcast.evidence.comparison.reality.exposure import COMPUTING, COPYING, SENDING, Interval, shared_out
from meshcast.evidence.comparison.reality.matching import How, matched
from meshcast.evidence.comparison.reality.predicted import PredictedLaunch
from meshcast.evidence.comparison.reality.rows import KernelRow, kernel_rows, match_class
from meshcast.evidence.comparison.reality.sources import Sources
from meshcast.evidence.profiler.classes import IDLE, class_of, is_collective, is_memory_operation
from meshcast.evidence.profiler.steps import StepSearch
from meshcast.evidence.profiler.trace import MeasuredKernel, MeasuredTrace
from meshcast.results import Prediction

SCHEMA = "meshcast.reality/1"
WITHIN = 4.0  # times longer or shorter: a pair that order alone made counts as covered only if it is closer
WORST = 10
OTHER_COMPILATION = (
    "XLA numbered its instructions otherwise for the trace than for the prediction (another release or other settings): "
    "names count only where durations agree; give the .hlo of the measured program as target to have them all"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallPart:
    """A class of kernels in the waterfall: seconds of the step that it is charged with on both sides."""

    kind: str
    predicted_s: float
    measured_s: float
    predicted_launches: int
    measured_launches: int

    @property
    def difference_s(self) -> float:
        """Measured less predicted."""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Shares of kernel time with a partner on the other side."""

    by_name: float  # of measured time, by the names of instructions
    by_order: float  # of measured time, by order and class, and within a factor of `WITHIN`
    by_duration: float  # likewise, out of order
    predicted: float  # of predicted time, by either

    @property
    def measured(self) -> float:
        """The share of measured kernel time that has a partner, by name, order or duration."""
        return self.by_name + self.by_order + self.by_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRank:
    """A device that was measured."""

    trace: MeasuredTrace = field(repr=False)
    search: StepSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class Reality:
    """A prediction and a trace, kernel by kernel.

    Attributes:
        prediction: What was predicted.
        shown: The device whose step is compared: of several, the one with the median step.
        ranks: All devices that were measured.
        predicted_s, measured_s: The two steps. Of a summary without times of day, kernels alone on both sides.
        waterfall: Classes by difference; their differences add up to that of the steps.
        rows: Every kernel of both, the largest difference first.
        coverage: How much of both sides has a partner.
        evidence: What speaks for the trace being of this program.
        notes: What a reader must know.
    """

    prediction: Prediction = field(repr=False)
    shown: MeasuredRank
    ranks: tuple[MeasuredRank, ...] = field(repr=False)
    predicted_s: float
    measured_s: float
    waterfall: tuple[WaterfallPart, ...] = field(repr=False)
    rows: tuple[KernelRow, ...] = field(repr=False)
    coverage: Coverage
    evidence: Evidence
    notes: tuple[str, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether enough of both sides was found on the other for this to be a trace of this program."""
        return self.evidence.verdict != "other"

    @property
    def difference_s(self) -> float:
        """Measured less predicted."""
        return self.measured_s - self.predicted_s

    @property
    def predicted_busy_s(self) -> float:
        """The predicted step without the moments in which nothing runs."""
        return self.predicted_s - sum(part.predicted_s for part in self.waterfall if part.kind == IDLE)

    @property
    def measured_busy_s(self) -> float:
        """The measured step without the moments in which nothing runs."""
        return self.measured_s - sum(part.measured_s for part in self.waterfall if part.kind == IDLE)

    @property
    def worst(self) -> tuple[KernelRow, ...]:
        """The kernels of both sides that part most."""
        return tuple(row for row in self.rows if row.how not in ("missing", "extra"))[:WORST]

    def of(self, how: str) -> tuple[KernelRow, ...]:
        """Rows by how they were found: `missing` and `extra` are on one side only."""
        return tuple(row for row in self.rows if row.how == how)

    def to_json(self) -> dict[str, Any]:
        """Everything, as `compare --measured --json` prints it."""
        return {
            "schema": SCHEMA,
            "target": self.prediction.name,
            "on": self.prediction.device,
            "fidelity": self.prediction.fidelity,
            "lowering": self.prediction.lowering,
            "comparable": self.comparable,
            "predicted_step_s": self.predicted_s,
            "measured_step_s": self.measured_s,
            "difference_s": self.difference_s,
            "ratio": self.predicted_s / self.measured_s,
            "predicted_busy_s": self.predicted_busy_s,
            "measured_busy_s": self.measured_busy_s,
            "waterfall": [
                {
                    "class": part.kind,
                    "predicted_s": part.predicted_s,
                    "measured_s": part.measured_s,
                    "difference_s": part.difference_s,
                    "predicted_launches": part.predicted_launches,
                    "measured_launches": part.measured_launches,
                }
                for part in self.waterfall
            ],
            "coverage": {
                "measured": self.coverage.measured,
                "by_name": self.coverage.by_name,
                "by_order": self.coverage.by_order,
                "by_duration": self.coverage.by_duration,
                "predicted": self.coverage.predicted,
            },
            "evidence": self.evidence.to_json(),
            "worst": [row.to_json() for row in self.worst],
            "missing": [row.to_json() for row in self.of("missing")],
            "extra": [row.to_json() for row in self.of("extra")],
            "kernels": [row.to_json() for row in self.rows],
            "measured": [_rank_json(rank, shown=rank is self.shown) for rank in self.ranks],
            "warnings": list(self.notes),
            "prediction": self.prediction.to_json(),
            "tool": {"version": VERSION},
        }

    def __str__(self) -> str:
        from meshcast.evidence.comparison.reality.tables import reality_text

        return reality_text(self)


def _rank_json(rank: MeasuredRank, *, shown: bool) -> dict[str, Any]:
    trace, search = rank.trace, rank.search
    return {
        "source": trace.source,
        "format": trace.format,
        "device": trace.device,
        "rank": trace.rank,
        "device_name": trace.device_name or None,
        "shown": shown,
        "steps": {
            "found": len(search.steps),
            "by": search.method,
            "counted": list(search.counted),
            "chosen": search.chosen,
            "seconds": [step.seconds for step in search.steps],
            "launches": [step.launches for step in search.steps],
        },
    }


def side_by_side(
    prediction: Prediction, launches: Sequence[PredictedLaunch], step_s: float, shown: MeasuredRank,
    ranks: Sequence[MeasuredRank], *, notes: Sequence[str] = (), sources: Sources | None = None,
) -> Reality:  # fmt: skip
    """The predicted launches of a step that takes `step_s` beside the median step of a measured device."""
    step = shown.search.step
    measured = step.kernels
    matching = matched(launches, measured, ordered=shown.trace.ordered)
    matches = matching.matches
    kinds_p, kinds_m = [launch.kind for launch in launches], [class_of(kernel) for kernel in measured]
    for match in matches:
        kind = match_class(match, launches, measured)
        for i in match.predicted:
            kinds_p[i] = kind
        for j in match.measured:
            kinds_m[j] = kind
    own = [
        Interval(start=launch.start, end=launch.end, kind=kind, tier=launch.tier)
        for launch, kind in zip(launches, kinds_p, strict=True)
    ]
    predicted_parts, measured_parts = shared_out(own, 0.0, step_s), {}
    if shown.trace.ordered:
        others = [
            Interval(start=kernel.start, end=kernel.end, kind=kind, tier=_tier(kernel))
            for kernel, kind in zip(measured, kinds_m, strict=True)
        ]
        measured_parts = shared_out(others, measured[0].start, step.seconds)
    else:  # kernels alone: nobody knows when they ran, nor what was between them
        del predicted_parts[IDLE]
        for kernel, kind in zip(measured, kinds_m, strict=True):
            measured_parts[kind] = measured_parts.get(kind, 0.0) + kernel.duration
    parts = [
        WaterfallPart(
            kind=kind,
            predicted_s=predicted_parts.get(kind, 0.0),
            measured_s=measured_parts.get(kind, 0.0),
            predicted_launches=kinds_p.count(kind),
            measured_launches=sum(k.count for k, found in zip(measured, kinds_m, strict=True) if found == kind),
        )
        for kind in {**predicted_parts, **measured_parts}
    ]
    rows = kernel_rows(matches, launches, measured, sources or Sources())
    coverage = _coverage(rows)
    evidence = evidence_of(matches, launches, measured, min(coverage.measured, coverage.predicted))
    doubt = [f"this may be a trace of another program: {evidence.why}"] if evidence.verdict == "doubtful" else []
    other = [] if matching.one_compilation else [OTHER_COMPILATION]
    return Reality(
        prediction=prediction,
        shown=shown,
        ranks=tuple(ranks),
        predicted_s=sum(part.predicted_s for part in parts),
        measured_s=sum(part.measured_s for part in parts),
        waterfall=tuple(sorted(parts, key=lambda part: -abs(part.difference_s))),
        rows=rows,
        coverage=coverage,
        evidence=evidence,
        notes=(*doubt, *notes, *other),
    )


def _tier(kernel: MeasuredKernel) -> int:
    if is_collective(class_of(kernel)):
        return SENDING
    return COPYING if is_memory_operation(kernel) else COMPUTING


def _coverage(rows: Sequence[KernelRow]) -> Coverage:
    measured, predicted = sum(row.measured_s for row in rows), sum(row.predicted_s for row in rows)
    close = [row for row in rows if row.how == "name" or (row.ratio and 1 / WITHIN <= row.ratio <= WITHIN)]

    def share(how: How) -> float:
        return sum(row.measured_s for row in close if row.how == how) / measured if measured else 0.0

    return Coverage(
        by_name=share("name"),
        by_order=share("order"),
        by_duration=share("duration"),
        predicted=sum(row.predicted_s for row in close) / predicted if predicted else 0.0,
    )
