"""Published runs predicted: a result for each, in the row's own metric."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from meshcast.base import UsageError
from meshcast.evidence.validate.programs import ProgramRow, in_processes, why_failed, why_untimed
from meshcast.evidence.validate.runs.metrics import Metric, metric_of
from meshcast.evidence.validate.runs.recomputation import predict_fitting
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.evidence.validate.runs.target import RunTarget, run_target
from meshcast.options import Options

NO_SOURCE = "no source"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run: what was made of it, and what was predicted or why not.

    Attributes:
        row: Measured and predicted in the metric's own unit, grouped by source.
        memory: Bytes that a device is predicted to hold; None where nothing was predicted.
        over_memory: Whether that is more than the device has, and the time was asked for all the same.
    """

    measured: RunRow = field(repr=False)
    target: RunTarget = field(repr=False)
    row: ProgramRow
    metric: Metric | None = None
    memory: int | None = None
    over_memory: bool = False

    @property
    def step(self) -> ProgramRow:
        """The row as step times in seconds, which every metric can be turned into, so that groups may mix metrics."""
        if self.metric is None or self.row.predicted is None or self.row.measured is None:
            return self.row
        seconds = self.metric.seconds
        ends = (self.row.low, self.row.high)
        low, high = sorted(seconds(end) for end in ends if end is not None) if None not in ends else ends
        return ProgramRow(
            id=self.row.id, group=self.row.group, measured=seconds(self.row.measured),
            predicted=seconds(self.row.predicted), low=low, high=high,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The contract's line of a row, and what was made of it."""
        line = {**self.row.to_json(), "unit": self.measured.metric}
        if self.metric is not None:
            line["definition"] = self.metric.definition
        if self.step.measured is not None and self.metric is not None and self.row.predicted is not None:
            line["step_time_s"] = {"measured": self.step.measured, "predicted": self.step.predicted}
        return {
            **line,
            "hardware": self.target.hardware_class,
            "memory_bytes": self.memory,
            "over_memory": self.over_memory,
            "target": self.target.to_json(),
            "command": self.target.command if not self.target.missing else None,
        }


def chosen_runs(rows: Sequence[RunRow], *, only: str | None, limit: int | None) -> list[RunRow]:
    """Rows whose id, source, hardware or model a pattern is found in; the first ones where there is a limit.

    Raises:
        UsageError: The pattern is none, or no row matches.
    """
    if only is None:
        return list(rows[:limit])
    try:
        pattern = re.compile(only, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"{only!r} is no regular expression: {error}", where="--only") from None
    found = [row for row in rows if pattern.search(f"{row.id} {row.source} {row.hardware} {row.model}")]
    if not found:
        raise UsageError(
            f"no row's id, source, hardware or model matches {only!r}", where="--only", fix="try a part of an id"
        )
    return found[:limit]


def validate_runs(
    rows: Sequence[RunRow], options: Options, *, over_memory: bool = False, jobs: int = 1
) -> Iterator[RunResult]:
    """A result for each row, in order, as soon as it is known."""
    yield from in_processes(partial(validate_run, options=options, over_memory=over_memory), rows, jobs)


def validate_run(measured: RunRow, options: Options, *, over_memory: bool = False) -> RunResult:
    """One row's result; whatever goes wrong with it is the row's `why`, so that the others are still judged."""
    target = run_target(measured)
    group = source_name(measured)
    failed = partial(ProgramRow, id=measured.id, group=group, measured=measured.value, predicted=None)
    result = partial(RunResult, measured=measured, target=target)
    if target.missing:
        return result(row=failed(why=f"lacks {'; '.join(target.missing)}"))
    try:
        metric = metric_of(measured, target)
        if metric.assumption:
            target = replace(target, assumptions=(*target.assumptions, metric.assumption))
        target, prediction = predict_fitting(target, options, over_memory=over_memory)
    except Exception as error:  # this row's failure, or a bug: named in the row, so that the others are still judged
        return result(row=failed(why=why_failed(error)))
    result = partial(RunResult, measured=measured, target=target)
    memory = prediction.memory.peak
    if reason := why_untimed(prediction):
        return result(row=failed(why=reason), metric=metric, memory=memory)
    assert prediction.step_time_s is not None
    assert target.on is not None
    ends = prediction.interval_s or (prediction.step_time_s, prediction.step_time_s)
    low, high = sorted(map(metric.of, ends))  # of rates the longer time is the lower end
    row = ProgramRow(
        id=measured.id, group=group, measured=measured.value, predicted=metric.of(prediction.step_time_s), low=low,
        high=high,
    )  # fmt: skip
    return result(row=row, metric=metric, memory=memory, over_memory=memory > target.on.device.memory_bytes)


def source_name(row: RunRow) -> str:
    """A short name of a row's source: a repository's, a paper's number, a host's."""
    text = re.split(r"\s", row.source.strip())[0] if row.source.strip() else ""
    if not text:
        return NO_SOURCE
    _, _, path = text.partition("://")
    host, *parts = (path or text).split("/")
    if host == "github.com" and len(parts) >= 2:
        return parts[1]
    return f"{host} {parts[-1]}" if parts else host
