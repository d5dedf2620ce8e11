"""`meshcast compare --measured` at the command line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli.conftest import Meshcast
from tests.measured.traces import kernel_event, kineto

EXAMPLES = Path(__file__).parents[2] / "examples" / "measured"
PROFILE = str(EXAMPLES / "gpt2-small-graphs.xplane.pb.gz")
HLO = str(EXAMPLES / "gpt2-small.hlo.gz")


def test_the_example(meshcast: Meshcast) -> None:
    answer = meshcast("compare", HLO, "--on", "h200", "--fidelity", "analytical", "--measured", PROFILE)
    assert answer.code == 0
    assert "Where they part" in answer.out
    assert not list(Path.cwd().iterdir())  # nothing is kept


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
