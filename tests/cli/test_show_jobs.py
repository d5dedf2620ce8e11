"""`show` and `trace` of targets with several programs: pipelines, and models that answer requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast.base.errors import MeshcastError
from meshcast.cli.app import app
from meshcast.traces.passes import pass_path

STAGED = ("gpt2-tiny", "--plan", "pp=2", "--set", "batch=4", "--on", "dgx-h100", "--lowering", "modelled")
PROMPTS = {"mode": "serve", "batch": "3", "prompt": "48", "output": "8", "prefill_chunk": "96"}
SERVED = ("llama3-tiny", "--on", "h100-sxm", *(word for item in PROMPTS.items() for word in ("--set", "=".join(item))))


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.exception
    return result.stdout


def refused(*words: str) -> MeshcastError:
    found = CliRunner().invoke(app, list(words)).exception
    assert isinstance(found, MeshcastError)
    return found


def shown(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(*words, "--json"))
    return found


def test_a_pipeline_is_shown_by_stage_and_part() -> None:
    found = shown("show", *STAGED, "--kernels")
    assert found["schema"] == "meshcast.pipeline/1"
    assert (found["devices"], found["schedule"], found["microbatches"]) == (2, "1f1b", 4)
    assert [stage["first_device"] for stage in found["stages"]] == [0, 1]
    positions = [part["position"] for stage in found["stages"] for part in stage["parts"]]
    assert positions == [0, 1]
    for stage in found["stages"]:
        works = [task["work"] for task in stage["tasks"]]
        assert (works.count("F"), works.count("B")) == (4, 4)
        assert all(task["start_s"] < task["end_s"] <= stage["end_s"] for task in stage["tasks"])
    for part in found["parts"]:
        assert {"forward", "backward", "update"} <= part["programs"].keys()
        for program in part["programs"].values():
            assert program["schema"] == "meshcast.kernels/1"
            assert sum(kernel["count"] for kernel in program["kernels"]) == program["launches"]
    (predicted,) = (json.loads(invoke("predict", *STAGED, "--levers", "none", "--json")),)
    assert found["step_time_s"] == predicted["step_time_s"]


def test_ops_and_tables_of_a_pipeline() -> None:
    found = shown("show", *STAGED[:-2])
    assert {program["schema"] for part in found["parts"] for program in part["programs"].values()} == {
        "meshcast.workload/1"
    }
    text = invoke("show", *STAGED, "--kernels", "--limit", "2")
    for part in found["parts"]:
        assert f"{part['name']}, forward: " in text
    error = refused("show", *STAGED, "--kernels", "--explain", "1")
    assert (error.exit_code, error.message) == (2, "rows are numbered in each of its programs")


def test_show_heeds_what_shapes_a_step() -> None:
    """A pipeline's schedule and the kernels' shares of a step are timed: the network and the run have their flags."""
    usual = shown("show", *STAGED)["step_time_s"]
    flags = ("--background", "nvlink=0.9", "--host", "off")
    (predicted,) = (json.loads(invoke("predict", *STAGED, *flags, "--levers", "none", "--json")),)
    assert shown("show", *STAGED, *flags)["step_time_s"] == predicted["step_time_s"] != usual
    tanh = "tests/fixtures/tanh.mlir"
    assert shown("show", tanh, "--kernels", "--host", "off")["schema"] == "meshcast.kernels/1"
    for words in (("show", tanh), ("show", tanh, "--partitioned"), ("show", *STAGED[:-2], "--partitioned")):
        error = refused(*words, "--host", "off")
        assert (error.exit_code, error.where) == (2, "--host")


def test_passes_of_requests_are_shown_and_traced(tmp_path: Path) -> None:
    """Three prompts of 48 tokens, 96 at a time: a pass over two of them, one over the third, and seven decoding steps."""
    found = shown("show", *SERVED, "--lowering", "modelled", "--kernels")
    assert found["schema"] == "meshcast.serving/1"
    assert [(each["name"], each["times"], each["batch"], each["tokens"]) for each in found["passes"]] == [
        ("prefill-1", 1, 2, 48),
        ("prefill-2", 1, 1, 48),
        ("decode", 7, 3, 1),
    ]
    text = invoke("show", *SERVED, "--limit", "2")
    for named in ("prefill-1 (once, batch 2", "prefill-2 (once, batch 1", "decode (7 times, batch 3, 1 token each"):
        assert named in text
    out = tmp_path / "answers.json"
    written = shown("trace", *SERVED, "--lowering", "modelled", "--format", "kineto", "-o", str(out))
    paths = [path for each in written["passes"] for path in each["files"]]
    assert paths == [str(tmp_path / f"answers.{name}.json") for name in ("prefill-1", "prefill-2", "decode")]
    assert all(json.loads(Path(path).read_text())["traceEvents"] for path in paths)


def test_no_pass_is_traced_where_one_does_not_fit(tmp_path: Path) -> None:
    words = [word if word != "h100-sxm" else "h100-sxm+memory.capacity=100kB" for word in SERVED]
    error = refused("trace", *words, "--format", "kineto", "-o", str(tmp_path / "a.json"))
    assert error.exit_code == 3
    assert "there is no step to trace" in error.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "prefix", "made"),
    [
        ("a.json", False, "a.decode.json"),
        ("a.b.json.gz", False, "a.b.decode.json.gz"),
        ("plain", False, "plain.decode"),
        ("llama3.1", True, "llama3.1.decode"),
    ],
)
def test_places_of_passes(out: str, prefix: bool, made: str) -> None:
    assert pass_path(Path("x") / out, "decode", prefix=prefix) == Path("x") / made
