"""`meshcast compare` at the command line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from meshcast.evidence.comparison import grid
from meshcast.jobs import predict_job
from tests.cli.conftest import Meshcast
from tests.jobs.traced.jobs import collective, compute, job

FIXTURES = Path(__file__).parents[1] / "fixtures"
TANH, SHARDED = str(FIXTURES / "tanh.mlir"), str(FIXTURES / "sharded.mlir")


def test_the_table_and_the_run_folder(meshcast: Meshcast) -> None:
    answer = meshcast("compare", TANH, SHARDED, "--on", "mi300x,h200,b200", "--fidelity", "roofline,profiled")
    assert answer.code == 0
    assert "tanh: step time" in answer.out
    assert "Does the order survive a change of fidelity?" in answer.out
    assert "mi300x" in answer.out
    assert "unsupported" in answer.out
    assert "nothing was measured on" in answer.out
    assert "wrote compare-tanh-and-1-more" in answer.err
    assert Path("compare-tanh-and-1-more", "plot.svg").read_text().startswith("<svg")
    again = meshcast("compare", TANH, SHARDED, "--on", "mi300x,h200,b200", "--fidelity", "roofline,profiled")
    assert again.out == answer.out
    assert "12 of 12 answers from earlier runs" in again.err


def test_json_is_one_object_a_cell_and_a_summary(meshcast: Meshcast) -> None:
    answer = meshcast("compare", TANH, "--on", "tpu-v5e,h200", "--fidelity", "all", "-o", "run", "--json")
    assert answer.code == 0
    *cells, summary = answer.lines
    assert summary["schema"] == "meshcast.comparison/1"
    assert len(cells) == summary["cells"] == 2 * len(summary["fidelities"])
    assert [(c["on"], c["fidelity"]) for c in cells] == [(d, f) for d in summary["on"] for f in summary["fidelities"]]
    for cell in cells:
        assert cell["schema"] == "meshcast.comparison-cell/1"
        if cell["status"] == "answered":
            assert cell["prediction"]["schema"] == "meshcast.prediction/1"
            assert cell["prediction"]["step_time_s"] == cell["step_time_s"]
            assert cell["ratio_to_best"] >= 1
        else:
            assert cell["step_time_s"] is None
            assert set(cell["error"]) >= {"code", "message", "where"}
    table = json.loads(Path("run", "table.json").read_text())
    assert table.pop("table") == cells
    assert table.pop("command")[:2] == ["meshcast", "compare"]
    assert table == summary


def test_devices_are_given_one_by_one_or_with_commas(meshcast: Meshcast) -> None:
    several = ("--on", "h200,b200", "--on", "tpu-v5e", "--fidelity", "roofline")
    answer = meshcast("compare", TANH, *several, "--no-folder", "--json")
    assert [cell["on"] for cell in answer.lines[:-1]] == ["h200", "b200", "tpu-v5e"]
    refused = meshcast("predict", TANH, "--on", "h200", "--on", "b200", "--json")
    assert refused.code == 2
    assert refused.lines[0]["error"]["where"] == "--on"


def test_without_a_folder(meshcast: Meshcast) -> None:
    answer = meshcast("compare", TANH, "--on", "h200", "--fidelity", "roofline", "--no-folder")
    assert (answer.code, answer.err) == (0, "")
    assert not list(Path().iterdir())
    assert meshcast("compare", TANH, "--on", "h200", "--no-folder", "-o", "run").code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("missing.mlir", "--on", "h200"), 2, "no such file"),
        ((TANH, "--on", "h2000"), 4, "did you mean 'h200'"),
        ((TANH, "--on", "h200", "--fidelity", "rooflin"), 2, "did you mean 'roofline'"),
        ((TANH, "--on", ","), 2, "no device is given"),
        ((TANH, "--on", "mi300x", "--fidelity", "profiled"), 4, "nothing was measured on mi300x"),
        ((TANH, "--on", "h200,mi300x", "--fidelity", "profiled"), 0, "nothing was measured on mi300x"),
        ((TANH, TANH, "--on", "h200"), 2, "named twice"),
        ((TANH,), 2, "--on"),
    ],
)
def test_mistakes_and_exit_codes(meshcast: Meshcast, arguments: tuple[str, ...], code: int, words: str) -> None:
    answer = meshcast("compare", *arguments)
    assert answer.code == code
    assert words in " ".join((answer.out + answer.err).split())


def test_ctrl_c_prints_what_there_is_and_goes_on_later(meshcast: Meshcast, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = predict_job, []

    def interrupted(*arguments: object) -> object:
        asked.append(arguments)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(grid, "predict_job", interrupted)
    command = ("compare", TANH, "--on", "h200,b200", "--fidelity", "roofline")
    answer = meshcast(*command)
    assert answer.code == 130
    assert "not run" in answer.out
    assert "1 answers are in compare-tanh" in answer.err
    answer = meshcast(*command)
    assert answer.code == 0
    assert "1 of 2 answers from earlier runs" in answer.err


def test_standard_input_is_read_once(meshcast: Meshcast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(Path(TANH).read_bytes())))
    answer = meshcast("compare", "-", "--on", "tpu-v5e,h200", "--fidelity", "roofline", "--no-folder", "--json")
    assert answer.code == 0
    assert [line["status"] for line in answer.lines[:-1]] == ["answered", "answered"]


def test_chakra_traces_and_their_durations(meshcast: Meshcast, tmp_path: Path) -> None:
    nodes = (compute(0, 10), collective(1, 5, 0))
    asked = ("compare", job(tmp_path, [nodes, nodes]), "--on", "dgx-h100,dgx-a100", "--fidelity", "auto", "-o", "run")
    replayed = meshcast(*asked, "--durations", "trace", "--json")
    assert replayed.code == 0
    assert [cell["step_time_s"] for cell in replayed.lines[:-1]] == [pytest.approx(15e-6)] * 2
    estimated = meshcast(*asked, "--durations", "estimated", "--json")
    assert estimated.lines[0]["step_time_s"] != estimated.lines[1]["step_time_s"]
    again = meshcast(*asked, "--durations", "estimated", "--json")
    assert again.lines == estimated.lines
    assert "2 of 2 answers from earlier runs" in again.err
