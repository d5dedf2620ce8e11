"""`meshcast explore SPACE.toml`: points, folders, what goes on after an end, and what is refused."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from meshcast.cli.app import run
from meshcast.explore import asking
from meshcast.explore.engines.in_process import InProcess
from meshcast.explore.keeping import Keeper
from tests.cli.conftest import Meshcast

SPACE = """\
schema = "meshcast.space/1"
model = "gpt2-tiny"
on = "dgx-h100"
plans = ["dp=2", "tp=2,sp=1"]

[set]
batch = 4
seq = 64

[options]
fidelity = "roofline"

[hardware]
"memory.bandwidth" = ["1x", "2x"]
"""
ASKED = ("explore", "space.toml", "--engine", "in-process")


@pytest.fixture
def written(meshcast: Meshcast) -> Meshcast:
    Path("space.toml").write_text(SPACE)
    return meshcast


def test_points_and_the_summary_as_json_lines(written: Meshcast) -> None:
    answer = written(*ASKED, "--no-folder", "--json", "--points")
    assert answer.code == 0, answer.err
    *points, summary = answer.lines
    assert [each["number"] for each in points] == [0, 1, 2, 3]
    assert {each["schema"] for each in points} == {"meshcast.exploration-point/1"}
    assert summary["schema"] == "meshcast.exploration/1"
    assert (summary["space"], summary["evaluated"], summary["infeasible"]) == (4, 4, 0)
    assert summary["best"][0]["step_time_s"] == min(each["step_time_s"] for each in points)
    # Twice the bandwidth is never slower, and helps what it binds.
    times = {(each["plan"], each["on"] == points[0]["on"]): each["step_time_s"] for each in points}
    assert times["dp=2", False] < times["dp=2", True]


def test_the_command_is_told_by_its_name_however_it_was_started(
    written: Meshcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m meshcast` has the path of `__main__.py` as its first word."""
    monkeypatch.setattr(sys, "argv", ["/site/meshcast/__main__.py", *ASKED, "-o", "found"])
    with contextlib.suppress(SystemExit):
        run()
    assert json.loads(Path("found/environment.json").read_text())["command"] == ["meshcast", *ASKED, "-o", "found"]


def test_a_sweep_that_is_ended_keeps_what_is_finished_and_goes_on(
    written: Meshcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(self: InProcess, works: Any) -> Any:
        for number, answer in answers(self, works):
            if number == 2:
                raise KeyboardInterrupt
            yield number, answer

    answers = InProcess.answers
    monkeypatch.setattr(InProcess, "answers", ended)
    first = written(*ASKED, "--json")
    assert first.code == 130
    assert (first.lines[-1]["evaluated"], first.lines[-1]["interrupted"]) == (2, True)
    assert len(Path("explore-space/points.jsonl").read_text().splitlines()) == 2
    monkeypatch.setattr(InProcess, "answers", answers)
    refused = written(*ASKED, "--json")
    assert refused.code == 2
    assert "--resume" in refused.lines[-1]["error"]["fix"]
    second = written(*ASKED, "--json", "--resume")
    assert second.code == 0
    assert second.lines[-1]["evaluated"] == 4
    assert len(Path("explore-space/points.jsonl").read_text().splitlines()) == 4


def test_a_poisoned_point_is_recorded_with_its_error_and_stops_nothing(
    written: Meshcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshcast.explore import evaluating

    def poisoned(point: Any) -> Any:
        if "tp=2" in point.plan:
            raise RuntimeError("a bug of ours")
        return predicted(point)

    predicted = evaluating.predicted
    monkeypatch.setattr(evaluating, "predicted", poisoned)
    *points, summary = written(*ASKED, "--no-folder", "--json", "--points").lines
    assert summary["failed"] == 2
    assert [each["status"] == "failed" for each in points] == ["tp=2" in each["plan"] for each in points]
    assert all("a bug of ours" in each["error"] for each in points if each["status"] == "failed")


def test_the_table_has_the_best_what_limits_them_and_what_would_help(written: Meshcast) -> None:
    answer = written(*ASKED, "--no-folder", "--sensitivity")
    assert answer.code == 0
    assert "best points of space.toml" in answer.out
    assert "what a tenth better would save" in answer.out
    assert "memory.bandwidth" in answer.out


def test_the_best_are_looked_at_again(written: Meshcast) -> None:
    Path("space.toml").write_text(SPACE + '\n[then]\nfidelity = "analytical"\n')
    summary = written(*ASKED, "--no-folder", "--json").lines[-1]
    assert len(summary["again"]) == len(summary["best"])
    assert all(a["step_time_s"] > b["step_time_s"] for a, b in zip(summary["again"], summary["best"], strict=True))
    assert {each["fidelity"] for each in summary["again"]} == {"analytical"}


def test_plans_are_searched_over_for_each_machine(written: Meshcast) -> None:
    text = SPACE.replace('plans = ["dp=2", "tp=2,sp=1"]', "devices = 2").replace(
        'on = "dgx-h100"', 'on = ["dgx-h100", "dgx-a100"]'
    )
    searched = text.partition("[hardware]")[0] + '[plan]\nremat = "full"\nmbs = 1\n[want]\ntop = 1\nper = ["on"]\n'
    Path("space.toml").write_text(searched)
    summary = written(*ASKED, "--no-folder", "--json").lines[-1]
    assert {each["on"] for each in summary["best"]} == {"dgx-h100", "dgx-a100"}
    every = written(*ASKED, "--no-folder", "--json", "--search", "exhaustive").lines[-1]
    assert every["evaluated"] == every["space"] == summary["space"]
    assert [each["step_time_s"] for each in every["best"]] == [each["step_time_s"] for each in summary["best"]]


def test_what_is_refused(written: Meshcast) -> None:
    assert written("explore", "none.toml", "--json").code == 2
    assert written(*ASKED, "--no-folder", "--resume", "--json").code == 2
    Path("space.toml").write_text(SPACE + '\n[limits]\nstep_time = "1 ns"\n')
    assert written(*ASKED, "--no-folder", "--json").code == 3
    Path("space.toml").write_text(SPACE + '\n[want]\nper = ["set.width"]\n')
    assert written(*ASKED, "--no-folder", "--json").code == 2


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        ('fidelity = "roofline"', "write it below [options]"), ("batch = 4", "below [set]"),
        ("device = 8", "did you mean 'devices'?"),
    ],
)  # fmt: skip
def test_keys_outside_of_their_table_say_where_they_belong(written: Meshcast, more: str, fix: str) -> None:
    Path("space.toml").write_text(SPACE.replace("\n[set]", f"{more}\n\n[set]"))
    answer = written(*ASKED, "--no-folder")
    assert (answer.code, fix in answer.err) == (2, True), answer.err


def test_a_space_of_one_point_says_how_to_make_more(written: Meshcast) -> None:
    Path("space.toml").write_text(SPACE.partition("plans =")[0] + SPACE.partition("\n\n")[2].partition("[hardware]")[0])
    answer = written(*ASKED, "--no-folder")
    assert answer.code == 0
    assert "1 point: 1 predicted" in answer.out
    assert "the space has one point" in answer.err


def test_where_nothing_runs_it_is_said_why(written: Meshcast) -> None:
    Path("space.toml").write_text(SPACE + '[limits]\nstep_time = "1 ns"\n')
    answer = written(*ASKED, "--no-folder")
    assert answer.code == 3
    assert "4 run, but not within the limits" in answer.out
    assert "the fastest step takes" in answer.out


def test_what_cannot_be_asked_leaves_no_folder(written: Meshcast) -> None:
    Path("space.toml").write_text(SPACE + '[want]\nobjectives = ["cost"]\n')
    answer = written(*ASKED)
    assert (answer.code, "cost needs a price" in answer.err) == (2, True)
    assert not Path("explore-space").exists()


def test_a_search_that_there_is_not_is_refused(written: Meshcast) -> None:
    answer = written(*ASKED, "--search", "tpee")
    assert (answer.code, "did you mean 'tpe'?" in answer.err) == (2, True), answer.err
    assert not Path("explore-space").exists()


def test_a_space_without_points_says_so(written: Meshcast) -> None:
    Path("space.toml").write_text(SPACE.replace('plans = ["dp=2", "tp=2,sp=1"]', "devices = 2") + "[plan]\npp = 3\n")
    answer = written(*ASKED, "--no-folder")
    assert answer.code == 3
    assert "the space has no points" in answer.out


def test_points_that_are_looked_at_again_are_told_apart(written: Meshcast) -> None:
    Path("space.toml").write_text(SPACE + '\n[then]\nfidelity = "analytical"\n')
    assert "dp=2, memory.bandwidth=2x" in written(*ASKED, "--no-folder").out


def test_all_points_are_listed_where_few_are_held(written: Meshcast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "Keeper", functools.partial(Keeper, most=1))
    *points, summary = written(*ASKED, "--no-folder", "--json", "--points").lines
    assert [each["number"] for each in points] == [0, 1, 2, 3]
    assert all(each["step_time_s"] > 0 for each in points)
    assert summary["evaluated"] == 4


def test_rows_of_all_points_have_their_money_their_objectives_and_their_hardware(
    written: Meshcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a point is held or not: its row can be sorted by what was searched for."""
    wanted = '[want]\nobjectives = ["cost", "throughput"]\nprice = "list"\n[limits]\nstep_time = "0.3 ms"\n'
    Path("space.toml").write_text(SPACE + wanted)
    *points, summary = written(*ASKED, "--no-folder", "--json", "--points").lines
    assert sorted(each["hardware.memory.bandwidth"] for each in points) == [3.35e12, 3.35e12, 6.7e12, 6.7e12]
    assert summary["best"][0]["hardware.memory.bandwidth"] == 6.7e12
    assert all(each["usd_per_million"] > 0 for each in points)
    # What does not keep to the limits is not ranked.
    ranked = [each for each in points if "objective.cost" in each]
    assert {each["plan"] for each in ranked} == {"dp=2"}
    for each in ranked:
        assert each["objective.cost"] == pytest.approx(each["usd_per_million"])
        assert each["objective.throughput"] == pytest.approx(each["units_per_s"])
    monkeypatch.setattr(asking, "Keeper", functools.partial(Keeper, most=1))
    *again, _ = written(*ASKED, "--no-folder", "--json", "--points").lines
    assert [each | {"seconds": 0} for each in again] == [each | {"seconds": 0} for each in points]


def test_the_table_of_a_folder_is_sorted_by_what_was_searched_for(written: Meshcast) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    Path("space.toml").write_text(SPACE + '[want]\nobjectives = ["cost"]\nprice = "list"\n')
    best = written(*ASKED, "--json").lines[-1]["best"]
    table = parquet.read_table("explore-space/points.parquet").sort_by("objective.cost").to_pylist()
    assert [each["number"] for each in table] == [each["number"] for each in best]
    assert [each["usd_per_million"] for each in table] == [each["usd_per_million"] for each in best]
