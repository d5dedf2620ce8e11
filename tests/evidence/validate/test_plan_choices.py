"""Which plan we would pick among measured runs, and how much slower than the fastest it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast.evidence.validate.plan_choices import choices_json, plan_choices, plan_groups
from meshcast.evidence.validate.programs import ProgramRow
from meshcast.evidence.validate.runs.comparison import RunResult
from meshcast.evidence.validate.runs.planned import row_target
from meshcast.evidence.validate.runs.rows import RunRow, read_run_rows

HEAD = "id,device,devices,model,step_time_s,gbs,mbs,tp,dp,recompute,framework_version,grade,async_tp\n"
ROWS = """\
a,h100-sxm,8,llama3-8b,10,16,1,1,8,full,,A,
b,h100-sxm,8,llama3-8b,8,16,1,8,1,full,,A,
c,h100-sxm,8,llama3-8b,20,32,2,8,1,full,,A,
d,h100-sxm,8,llama3-8b,8,16,1,8,1,full,2,A,0
e,h100-sxm,16,llama3-8b,5,16,1,1,16,full,,A,
f,h100-sxm,8,llama3-8b,1,16,1,4,2,full,,C,
g,h100-sxm,8,llama3-8b,7,16,1,8,1,full,2,A,1
"""


def _rows(tmp_path: Path) -> list[RunRow]:
    file = tmp_path / "runs.csv"
    file.write_text(HEAD + ROWS)
    return read_run_rows(file)


def _results(tmp_path: Path, predicted: dict[str, float | None]) -> tuple[dict[str, list[RunRow]], list[RunResult]]:
    rows = [row for row in _rows(tmp_path) if row.id in "abc"]
    results = [
        RunResult(
            measured=row,
            target=row_target(row),
            row=ProgramRow(id=row.id, group="x", measured=row.step_time_s, predicted=predicted.get(row.id)),
        )
        for row in rows
    ]
    return plan_groups(rows, any_batch=True), results


def test_runs_that_differ_in_their_plan_only_are_a_group(tmp_path: Path) -> None:
    """Neither another batch nor another version of the software is a plan; overlapped tensor parallelism is, grade C no run."""
    rows = _rows(tmp_path)

    def found(*, any_batch: bool = False) -> list[list[str]]:
        return [[row.id for row in members] for members in plan_groups(rows, any_batch=any_batch).values()]

    assert found() == [["a", "b"], ["d", "g"]]
    assert found(any_batch=True) == [["a", "b", "c"], ["d", "g"]]


def test_the_regret_is_by_the_measurement_and_by_sequence_where_batches_differ(tmp_path: Path) -> None:
    groups, results = _results(tmp_path, {"a": 9.0, "b": 9.5, "c": 21.0})
    (choice,) = plan_choices(groups, results)
    assert (choice.pick.row.id, choice.best.row.id) == ("a", "b")
    assert choice.regret == pytest.approx(10 / 8 - 1)
    assert not choice.good
    # Of c a sequence takes 20 / 32: less than b's 8 / 16? No: 0.625 beside 0.5.
    told = choices_json([choice], 1, any_batch=True)
    assert (told["rows"], told["failed"], told["good"], told["best_picked"]) == (1, 0, 0, 0)
    assert told["compared"] == "time of a sequence"


def test_a_pick_close_to_the_fastest_is_good_and_a_run_without_a_prediction_is_named(tmp_path: Path) -> None:
    groups, results = _results(tmp_path, {"a": None, "b": 9.5, "c": 21.0})
    (choice,) = plan_choices(groups, results)
    assert choice.failed == ("a",)
    assert choice.pick.row.id == choice.best.row.id == "b"
    assert choice.good
    assert choice.spearman == pytest.approx(1.0)
    assert choices_json([choice], 2)["failed"] == 1
    assert choices_json([choice], 2)["mean_spearman"] == pytest.approx(1.0)


def test_a_group_of_which_nothing_is_known_is_left_out(tmp_path: Path) -> None:
    groups, results = _results(tmp_path, {})
    assert plan_choices(groups, results) == []
