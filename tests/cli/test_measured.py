"""`meshcast compare --measured` at the command line."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from meshcast.evidence.comparison.reality import compare_measured
from tests.cli.conftest import Meshcast
from tests.evidence.profiler.traces import kernel_event, kineto

EXAMPLES = Path(__file__).parents[2] / "examples" / "measured"
PROFILE = str(EXAMPLES / "gpt2-small-graphs.xplane.pb.gz")
HLO = str(EXAMPLES / "gpt2-small.hlo.gz")


def test_the_example(meshcast: Meshcast) -> None:
    answer = meshcast("compare", HLO, "--on", "h200", "--fidelity", "analytical", "--measured", PROFILE)
    assert answer.code == 0
    assert "Where they part" in answer.out
    assert not list(Path.cwd().iterdir())  # nothing is kept


def test_the_page_says_what_a_similar_program_gives() -> None:
    """The zoo's model is not the profiled program any more: when it changes again, its paragraph has to follow.

    Releases of jax write the same model in slightly different programs, so not to the last digit.
    """
    page = (EXAMPLES.parents[1] / "docs" / "measured.md").read_text(encoding="utf-8")
    found = compare_measured(
        "gpt2-small", [PROFILE], on="h200", fidelity="profiled", lowering="modelled", settings={"attention": "plain"}
    )
    said = re.search(r"says ([0-9.]+) ms against ([0-9.]+) ms, with (\d+) % of the measured time aligned", page)
    assert said is not None
    predicted, measured, aligned = map(float, said.groups())
    assert predicted == pytest.approx(1e3 * found.predicted_s, rel=0.03)
    assert measured == pytest.approx(1e3 * found.measured_s, abs=0.06)
    assert aligned == pytest.approx(100 * found.coverage.measured, abs=3)


def test_a_trace_of_another_program_is_shown_and_refused(meshcast: Meshcast) -> None:
    answer = meshcast("compare", "mlp-tiny", "--on", "h200", "--measured", PROFILE, "--json")
    assert answer.code == 2
    found, error = answer.lines
    assert found["comparable"] is False
    assert "another program" in error["error"]["message"]
    assert "jit_train_step" in error["error"]["fix"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mlp-tiny", "gpt2-tiny", "--on", "h200"], "one prediction"),
        (["mlp-tiny", "--on", "h200,b200"], "one prediction"),
        (["mlp-tiny", "--on", "h200", "--fidelity", "roofline,analytical"], "one prediction"),
        (["mlp-tiny", "--on", "h200", "-o", "folder"], "keeps no folder"),
        (["mlp-tiny", "--on", "h200", "--steps", "0"], "0 steps"),
    ],
)
def test_questions_that_make_no_sense(meshcast: Meshcast, arguments: list[str], said: str) -> None:
    Path("t.json").write_bytes(kineto([kernel_event("gemm", 0.0, 1.0)]))
    answer = meshcast("compare", *arguments, "--measured", "t.json")
    assert answer.code == 2
    assert said in answer.err


def test_flags_about_a_trace_need_one(meshcast: Meshcast) -> None:
    answer = meshcast("compare", "mlp-tiny", "--on", "h200", "--steps", "3")
    assert answer.code == 2
    assert "--measured TRACE" in answer.err


def test_a_trace_that_cannot_be_read(meshcast: Meshcast) -> None:
    Path("cut.json.gz").write_bytes(gzip.compress(kineto([kernel_event("gemm", 0.0, 1.0)]))[:-12])
    for name, said in (("cut.json.gz", "cut off"), ("nothing.pb", "No such file")):
        answer = meshcast("compare", "mlp-tiny", "--on", "h200", "--measured", name, "--json")
        assert answer.code == 2
        assert said in answer.lines[0]["error"]["message"]


def test_a_predicted_trace_of_every_rank_is_its_own_prediction(meshcast: Meshcast, tmp_path: Path) -> None:
    """What `trace` writes for the ranks of a plan, `compare` finds again: the same step, all of it aligned, nobody waiting."""
    program = ("gpt2-tiny", "--set", "batch=4", "--on", "dgx-h100", "--plan", "fsdp=4,mbs=1")
    out = str(tmp_path / "ranks.json")
    assert meshcast("trace", *program, "--format", "kineto", "--ranks", "all", "-o", out).code == 0
    files = [argument for path in sorted(tmp_path.glob("*.json")) for argument in ("--measured", str(path))]
    answer = meshcast("compare", *program, *files, "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    assert found["ratio"] == pytest.approx(1.0, rel=1e-4)
    assert found["coverage"]["measured"] == pytest.approx(1.0)
    assert found["evidence"]["verdict"] == "same"
    assert [device["rank"] for device in found["measured"]] == [0, 1, 2, 3]
    assert any("of which 0 s wait for other ranks" in note for note in found["warnings"])


def test_a_table_that_is_cut_off_is_told(meshcast: Meshcast, tmp_path: Path) -> None:
    head = "Start (ns),Duration (ns),Device,Strm,Name\n"
    rows = [
        f"{step * 100_000 + i * 10_000},9000,NVIDIA H200 (0),7,nvjet_gemm_{i}\n" for step in range(4) for i in range(4)
    ]
    path = tmp_path / "launches.csv"
    path.write_text((head + "".join(rows))[:-3])
    answer = meshcast("compare", "mlp-tiny", "--on", "h200", "--measured", str(path))
    assert "line 17, the last row, has no end of line" in " ".join(answer.out.split())
    path.write_text((head + "".join(rows))[:-20])
    answer = meshcast("compare", "mlp-tiny", "--on", "h200", "--measured", str(path))
    assert answer.code == 2
    assert "launches.csv:17" in answer.err
