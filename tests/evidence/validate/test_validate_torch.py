"""`validate torch`: rows that are read and refused, and errors told by mode, those of cases set apart first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.evidence.validate.programs import Pair
from meshcast.evidence.validate.torch_steps import TorchRow, TorchRun, TorchSummary, read_torch_runs, torch_grids

GOOD = {"id": "net", "mode": "eager", "wall_us": 100.0, "peak_bytes": 1000, "kernel_count": 10}


def folder(path: Path, *rows: dict[str, object]) -> Path:
    (path / "cases.py").write_text("")
    (path / "measurements.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def test_rows(tmp_path: Path) -> None:
    found = read_torch_runs(folder(tmp_path, GOOD, {**GOOD, "mode": "compiled"}), modes=["compiled"])
    assert [(run.id, run.mode, run.wall_us, run.peak_bytes) for run in found] == [("net", "compiled", 100.0, 1000)]


@pytest.mark.parametrize("wrong", [{"mode": "traced"}, {"wall_us": 0}, {"id": None}])
def test_a_row_that_lacks_something(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="a row needs id"):
        read_torch_runs(folder(tmp_path, {**GOOD, **wrong}))


def test_no_cases(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no cases\.py"):
        read_torch_runs(tmp_path)


def test_what_was_set_apart_is_told_first(tmp_path: Path) -> None:
    def row(name: str, predicted: float | None) -> TorchRow:
        run = TorchRun(id=name, mode="eager", cases=tmp_path, wall_us=100.0)
        if predicted is None:
            return TorchRow(run=run, why="no torch")
        return TorchRow(run=run, time=Pair(predicted=predicted, measured=100.0))

    summary = TorchSummary(rows=(row("seen", 100.0), row("unseen", 125.0), row("failed", None)), apart=("unseen",))
    said = summary.to_json()
    assert list(said["groups"]) == ["eager, set apart", "eager"]
    assert said["groups"]["eager, set apart"]["geomean_error"] == pytest.approx(0.25)
    assert (said["rows"], said["failed"]) == (3, 1)
    assert torch_grids(summary)[0].rows[0][0] == "unseen (set apart)"


def test_the_devices_time_and_the_intervals_are_told_apart(tmp_path: Path) -> None:
    def row(name: str, interval: tuple[float, float]) -> TorchRow:
        run = TorchRun(id=name, mode="eager", cases=tmp_path, wall_us=100.0, busy_us=50.0)
        time, busy = Pair(predicted=150.0, measured=100.0), Pair(predicted=40.0, measured=50.0)
        return TorchRow(run=run, time=time, busy=busy, interval=interval)

    summary = TorchSummary(rows=(row("held", (90.0, 160.0)), row("missed", (140.0, 160.0))))
    said = summary.to_json()
    assert (said["inside_interval"], said["busy_geomean_error"]) == (0.5, pytest.approx(0.25))
    rows, errors = torch_grids(summary)
    assert [(line[5], line[8]) for line in rows.rows] == [("0.80", "yes"), ("0.80", "no")]
    assert errors.rows[0][3:8] == ("50.0%", "25.0%", "-", "-", "50.0%")
