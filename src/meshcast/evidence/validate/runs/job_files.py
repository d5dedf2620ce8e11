"""The file of a job for every run: what was predicted of it can be asked again, compared and changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshcast.base import file_name, write_whole
from meshcast.evidence.validate.runs.planned import row_target
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.jobs import job_text


def job_path(folder: Path, row: RunRow) -> Path:
    """Where a row's file lies."""
    return folder / f"{file_name(row.id)}.toml"


def write_job_files(rows: Sequence[RunRow], folder: Path) -> list[str]:
    """Writes the file of every row that lacks nothing to `folder/ID.toml`; gives the ids of the others.

    Raises:
        UsageError: The folder cannot be written to.
        OutputError: The disk is full.
    """
    lacking = []
    for row in rows:
        if row_target(row).missing:
            lacking.append(row.id)
        else:
            write_whole(job_path(folder, row), job_text(row.run, name=row.id, notes=tuple(_notes(row))))
    return lacking


def _notes(row: RunRow) -> list[str]:
    """Where the run comes from, and what was measured: comments, which nothing reads."""
    measured = f"measured: {row.step_time_s:g} s a step" if row.step_time_s is not None else ""
    published = f"published: {row.published}" if row.published else ""
    assumed = f"assumed: {row.assumed}" if row.assumed else ""
    return [note for note in (row.source, published, measured, assumed) if note]
