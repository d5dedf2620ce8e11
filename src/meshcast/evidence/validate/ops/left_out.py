"""Ops predicted from measured kernels that were collected without them: `validate ops --leave-out shape|source`.

By shape, five folds by a hash of it, so that a row is predicted from rows of other shapes, whatever their op; by source, every
file of measurements from all others. What is collected is of grade A; what is judged is whatever rows are asked for.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from meshcast.base import MeshcastError, UsageError, nearest
from meshcast.evidence.calibrate.op_table import ImpossibleTimeError, kernels_of_table
from meshcast.evidence.validate.ops.comparison import OpResult, validate_ops
from meshcast.evidence.validate.ops.rows import OpRow, device_of
from meshcast.hardware import resolve
from meshcast.options import Options

LeftOut = Literal["shape", "source"]
LEFT_OUT: tuple[LeftOut, ...] = get_args(LeftOut)
FOLDS = 5
LEARNED = "A"  # the grade of rows that kernels are collected from


def validate_left_out(
    judged: Sequence[OpRow], rows: Sequence[OpRow], options: Options, by: str, *, jobs: int = 1
) -> Iterator[OpResult]:
    """A result for each row that is judged, by device and fold; devices without other rows fall back to their model.

    Args:
        judged: What to predict.
        rows: What there is to learn from.
        options: Fidelity `profiled`, or `auto`.
        by: `shape` or `source`.
        jobs: Processes to predict in.

    Raises:
        UsageError: There is no such way, or the fidelity learns from nothing.
    """
    if by not in LEFT_OUT:
        raise UsageError(f"nothing is left out by {by!r}", where="--leave-out", fix=nearest(by, LEFT_OUT))
    if options.estimate.fidelity not in ("profiled", "auto"):
        raise UsageError(
            f"fidelity {options.estimate.fidelity!r} learns from no measured kernels that could be left out",
            where="--leave-out",
            fix="use --fidelity profiled",
        )
    folds: dict[tuple[str, str], list[OpRow]] = {}
    for row in judged:
        folds.setdefault((_device(row), _fold(row, by)), []).append(row)
    with tempfile.TemporaryDirectory() as folder:
        for number, ((device, fold), members) in enumerate(folds.items()):
            rest = [row for row in rows if row.grade == LEARNED and row.time_us and _fold(row, by) != fold]
            chosen = options.having(fidelity="analytical")
            if path := _collected(rest, device, Path(folder) / f"{number}.npz"):
                chosen = options.having(profile=str(path))
            yield from validate_ops(members, chosen, jobs=jobs)


def _device(row: OpRow) -> str:
    try:
        return device_of(row)
    except MeshcastError:  # named in its result
        return row.chip


def _fold(row: OpRow, by: str) -> str:
    return row.source if by == "source" else str(hashlib.sha256(row.text.encode()).digest()[0] % FOLDS)


def _collected(rest: Sequence[OpRow], device: str, path: Path) -> Path | None:
    """A file of what the other rows say about a device; None where they say nothing."""
    try:
        kernels_of_table(rest, resolve(device).device, source=path.stem).interpolator.save(path)
    except ImpossibleTimeError:
        raise
    except MeshcastError:
        return None
    return path
