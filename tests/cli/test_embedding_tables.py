"""`meshcast tables`: plans, tables and lists from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast.base import MeshcastError, UsageError
from meshcast.cli.app import app

TABLES = (
    "name,rows,dim,pooling,indices\nuser,2000000,64,1,uniform\nitem,50000,64,20,zipf:1.05\nplace,300,64,2,uniform\n"
)


def _said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["tables", *words])
    return done.exit_code, done.output


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tables.csv"
    path.write_text(TABLES)
    return str(path)


def test_a_plan_says_where_every_table_is_and_what_bounds_the_step(file: str) -> None:
    code, said = _said("plan", file, "--on", "dgx-h100", "--devices", "8", "--batch", "8192", "--json")
    assert code == 0
    found = json.loads(said)
    assert found["schema"] == "meshcast.tables-plan/1"
    assert [each["table"] for each in found["plan"]] == ["user", "item", "place"]
    assert found["step_time_s"] <= min(s for s in found["baselines_s"].values() if s)
    assert found["bound_by"]
    code, text = _said("plan", file, "--devices", "8", "--batch", "8192")
    assert code == 0
    assert "bound by" in text
    assert "instead of" in text


def test_dense_layers_take_their_time(file: str) -> None:
    bare, dense = (
        json.loads(_said("plan", file, "--devices", "8", "--batch", "8192", "--json", "--model", model)[1])
        for model in ("none", "dlrm")
    )
    assert dense["parts_s"]["dense"] > 0 == bare["parts_s"]["dense"]
    assert dense["step_time_s"] > bare["step_time_s"]


def test_tables_are_shown_and_listed(file: str) -> None:
    code, said = _said("show", file, "--on", "h200", "--batch", "4096", "--json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert code == 0
    assert [row["look_ups"] for row in rows] == [4096, 81920, 8192]
    assert rows[2]["different"] == pytest.approx(300, rel=0.01)
    assert [row["hits"] for row in rows] == [None] * 3
    assert _said("show", file)[0] == 0
    code, said = _said("lists")
    assert code == 0
    assert "mlperf-dcnv2" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("plan", "gone.csv"), 2, "no file of tables"),
        (("plan", "FILE", "--batch", "1001", "--devices", "8"), 2, "a batch of 1,001 on 8 devices"),
        (("plan", "FILE", "--on", "tpu-v5p"), 4, "modelled on GPUs"),
        (("plan", "FILE", "--model", "dlm"), 2, "did you mean 'dlrm'?"),
        (("plan", "FILE", "--wire", "f64"), 2, "no wire precision"),
        (("plan", "FILE", "--model", "dlrm", "--devices", "1", "--host", "bogus"), 2, "no host setting 'bogus'"),
        (("plan", "FILE", "--host", "bogus"), 2, "no host setting 'bogus'"),
        (("plan", "FILE", "--devices", "0"), 2, "0 devices"),
        (("plan", "FILE", "--slow", "3=1e-300"), 2, "is not from 0.001 to 1000"),
    ],
)
def test_mistakes_are_told(words: tuple[str, ...], code: int, said: str, file: str) -> None:
    done = CliRunner().invoke(app, ["tables", *(file if word == "FILE" else word for word in words)])
    assert isinstance(done.exception, MeshcastError)
    assert done.exception.exit_code == code
    assert said in str(done.exception)


def test_a_recommender_is_predicted_with_tables_that_are_given(file: str) -> None:
    words = ["predict", "two-tower", "--tables", file, "--on", "h200", "--devices", "1", "--set", "batch=512"]
    done = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(done.output)
    assert (done.exit_code, found["model"], found["schema"]) == (0, "two-tower", "meshcast.prediction/1")
    assert found["step_time_s"] == pytest.approx(found["host_s"])
    assert found["bound_by"] == "host"
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_time_s"])
    assert found["memory_bytes"]["peak"] < found["memory_bytes"]["capacity"]
    assert [each["table"] for each in found["plan"]] == ["user", "item", "place"]
    assert "bound by" in CliRunner().invoke(app, words).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpt2-small"], "no recommender 'gpt2-small'"),
        (["dlrm-criteo", "--set", "seq=1"], "no setting 'seq'"),
        (["dlrm-criteo", "--set", "batch=many"], "no count of samples"),
        (["dlrm-criteo", "--set", "batch=7", "--devices", "8"], "--set batch: a batch of 7"),
        (["dlrm-criteo", "--set", "wire=f99"], "--set wire: no wire precision"),
        (["dlrm-criteo", "--set", "precision=x"], "--set precision: no precision"),
        (["dlrm-criteo", "--plan", "tp=8"], "--plan does not concern"),
        (["dlrm-criteo", "--what-if", "hbm=2x"], "--what-if does not concern"),
        (["dlrm-criteo", "--overlap", "prefetch"], "--overlap does not concern"),
        (["dlrm-criteo", "--channels", "2"], "--channels does not concern"),
        (["dlrm-criteo", "--contention", "off"], "--contention does not concern"),
        (["dlrm-criteo", "--stack", "megatron"], "--stack does not concern"),
        (["dlrm-criteo", "--levers", "3"], "--levers does not concern"),
    ],
)
def test_what_no_recommender_has_is_refused(file: str, words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["predict", *words, "--tables", file, "--on", "h200"])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("verb", [["show"], ["trace", "--format", "kineto", "-o", "job.json"], ["report"]])
def test_verbs_that_want_one_program_name_those_that_take_a_recommender(verb: list[str]) -> None:
    done = CliRunner().invoke(app, [*verb, "DCNv2-Criteo", "--on", "h200"])
    assert isinstance(done.exception, MeshcastError)
    assert done.exception.exit_code == 2
    assert "meshcast predict DCNv2-Criteo and meshcast tables plan take it" in str(done.exception.fix)


@pytest.mark.parametrize(
    ("model", "words", "tables"),
    [
        ("dlrm-criteo", ["--on", "dgx-h100", "--devices", "8"], "mlperf-dlrm"),
        ("dcnv2-criteo", ["--on", "dgx-h100"], "mlperf-dcnv2"),
        ("two-tower", ["--on", "h200", "--devices", "1"], "mlperf-dlrm"),
        ("dlrm-criteo", ["--on", "h200"], None),
        ("dlrm-criteo", ["--on", "dgx-h100", "--devices", "8", "--mesh", "data=8"], None),
        ("dlrm-criteo", ["--on", "dgx-h100", "--devices", "8", "--set", "placement=row"], None),
        ("gpt2-tiny", ["--on", "dgx-h100", "--devices", "8"], None),
    ],
)
def test_a_recommender_on_several_devices_has_the_tables_that_are_shipped_for_it(
    model: str, words: list[str], tables: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr("meshcast.cli.with_tables.predict_with_tables", lambda m, t, *_, **__: asked.append((m, t)))
    monkeypatch.setattr("meshcast.jobs.predict", _refused)
    done = CliRunner().invoke(app, ["predict", model, *words])
    assert asked == ([(model, tables)] if tables else [])
    assert ("a program" in done.output) == (tables is None)


def _refused(*_: object) -> None:
    raise UsageError("a program")


def test_unlike_ranks_and_given_plans_are_timed(file: str, tmp_path: Path) -> None:
    words = ["plan", file, "--devices", "8", "--batch", "8192", "--json"]
    found = json.loads(_said(*words)[1])
    path = tmp_path / "plan.json"
    path.write_text(json.dumps([
        {"table": each["table"], "sharding": each["sharding"], "ranks": each["places"]} for each in found["plan"]
    ]))  # fmt: skip
    again = json.loads(_said(*words, "--given", str(path))[1])
    assert (again["plan"], again["step_time_s"]) == (found["plan"], found["step_time_s"])
    slow = json.loads(_said(*words, "--given", str(path), "--slow", "0-7=0.5")[1])
    assert slow["step_time_s"] > found["step_time_s"]


def test_tables_keep_their_names_in_narrow_terminals(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("60", "80", "200"):
        monkeypatch.setenv("COLUMNS", width)
        code, said = _said("show", file, "--batch", "512")
        assert code == 0
        assert [line.split()[0] for line in said.splitlines() if line.strip()][:4] == ["table", "user", "item", "place"]


def test_recommenders_are_among_the_models() -> None:
    listed = json.loads(CliRunner().invoke(app, ["models", "--json"]).output)["models"]
    assert {"dcnv2-criteo", "two-tower"} <= {each["name"] for each in listed}
    shown = CliRunner().invoke(app, ["models", "two-tower"]).output
    assert "--tables" in shown
    assert "batch" in shown
