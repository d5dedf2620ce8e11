"""Published runs predicted: a result for each, in seconds of a step."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from meshcast.base import UsageError
from meshcast.evidence.validate.programs import ProgramRow, in_processes, why_failed, why_untimed
from meshcast.evidence.validate.runs.job_files import job_path
from meshcast.evidence.validate.runs.planned import predict_fitting, row_target
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.jobs import RunTarget, unknown_target, with_unsaid
from meshcast.options import Options

NO_SOURCE = "no source"
UNIT = "s"
_APART = 3  # one source in so many


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run: what was made of it, and what was predicted or why not.

    Attributes:
        row: Measured and predicted seconds of a step, grouped by source.
        memory: Bytes that a device is predicted to hold; None where nothing was predicted.
        over_memory: Whether that is more than the device has.
        job_file: The file that asks for it, where one was written.
    """

    measured: RunRow = field(repr=False)
    target: RunTarget = field(repr=False)
    row: ProgramRow
    memory: int | None = None
    over_memory: bool = False
    job_file: Path | None = None

    @property
    def apart(self) -> bool:
        """Whether its source is one of those that nothing is tuned on."""
        return set_apart(self.row.group)

    def to_json(self) -> dict[str, Any]:
        """The contract's line of a row, and what was made of it."""
        return {
            **self.row.to_json(),
            "unit": UNIT,
            "grade": self.measured.grade,
            "apart": self.apart,
            "published": self.measured.published,
            "hardware": self.target.hardware_class,
            "memory_bytes": self.memory,
            "over_memory": self.over_memory,
            "target": self.target.to_json(),
            "job": str(self.job_file) if self.job_file is not None else None,
            "command": self.command,
        }

    @property
    def command(self) -> str | None:
        """What predicts the run alone: of its file where there is one; None where the row lacks something."""
        if self.target.missing:
            return None
        return self.target.command if self.job_file is None else f"meshcast predict {shlex.quote(str(self.job_file))}"


def chosen_runs(rows: Sequence[RunRow], *, only: str | None, limit: int | None) -> list[RunRow]:
    """Scored rows whose id, source, device or model a pattern is found in; the first ones where there is a limit.

    Raises:
        UsageError: The pattern is none, or no row matches.
    """
    rows = [row for row in rows if row.scored]
    if not rows:
        raise UsageError("no row is scored: all are of grade C", fix="rows of grade A or B say enough")
    if only is None:
        return rows[:limit]
    try:
        pattern = re.compile(only, re.IGNORECASE)
    except re.error as error:
        raise UsageError(
            f"{only!r} is no regular expression: {error}", where="--only", fix="such as --only 'llama|gpt'"
        ) from None
    found = [row for row in rows if any(map(pattern.search, (row.id, row.source, row.run.device, row.run.model)))]
    if not found:
        raise UsageError(
            f"no scored row's id, source, device or model matches {only!r}", where="--only", fix="try a part of an id"
        )
    return found[:limit]


def validate_runs(
    rows: Sequence[RunRow],
    options: Options,
    *,
    over_memory: bool = True,
    jobs: int = 1,
    job_files: Path | None = None,
    switched: bool = False,
) -> Iterator[RunResult]:
    """A result for each row, in order, as soon as it is known; with the files of `job_files` where these were written."""
    one = partial(validate_run, options=options, over_memory=over_memory, switched=switched)
    for result in in_processes(one, rows, jobs):
        if job_files is not None and not result.target.missing:
            result = replace(result, job_file=job_path(job_files, result.measured))
        yield result


def validate_run(measured: RunRow, options: Options, *, over_memory: bool = True, switched: bool = False) -> RunResult:
    """One row's result; whatever goes wrong with it is the row's `why`, so that the others are still judged.

    Args:
        measured: The row.
        options: Fidelity, network and the like.
        over_memory: Time it also where more memory is predicted than there is: it did run, and the error is the memory's.
        switched: Predict it with the stack most like its own.
    """
    failed = partial(
        ProgramRow, id=measured.id, group=source_name(measured), measured=measured.step_time_s, predicted=None
    )
    try:
        target = row_target(measured, switched=switched)
    except Exception as error:  # likewise
        why = why_failed(error)
        return RunResult(measured=measured, target=unknown_target(measured.run.devices, (why,)), row=failed(why=why))
    result = partial(RunResult, measured=measured, target=target)
    if target.missing:
        return result(row=failed(why=f"lacks {'; '.join(target.missing)}"))
    try:
        target, prediction = predict_fitting(target, options, over_memory=over_memory)
        if not target.recomputation_told and "remat" in target.plan:
            prediction = with_unsaid(prediction, str(target.plan["remat"]))
    except Exception as error:  # this row's failure, or a bug: named in the row, so that the others are still judged
        return result(row=failed(why=why_failed(error)))
    assert target.on is not None
    memory = prediction.memory.peak
    result = partial(
        RunResult, measured=measured, target=target, memory=memory, over_memory=memory > target.on.device.memory_bytes
    )
    if reason := why_untimed(prediction):
        return result(row=failed(why=reason))
    assert prediction.step_time_s is not None
    low, high = prediction.interval_s or (prediction.step_time_s, prediction.step_time_s)
    return result(row=replace(failed(), predicted=prediction.step_time_s, low=low, high=high))


def set_apart(source: str) -> bool:
    """Whether a source is left for judging: a third of them, by their names alone (SHA-256 of the name modulo 3 is 1)."""
    return int(hashlib.sha256(source.encode()).hexdigest(), 16) % _APART == 1


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
