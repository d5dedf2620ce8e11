"""The questions of docs/exploring.md, each run as it stands there, with models and counts that are quick."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Meshcast, meshcast

__all__ = ["meshcast"]
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "exploring.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(r"^    meshcast (.*)$", PAGE.partition("## Questions")[2].partition("## Money")[0], re.MULTILINE)
# What is smaller in the tests: models, devices, batches and lengths; the questions stay what they are.
SMALLER = (
    (r"gpt3-175b|llama3-70b|llama3-8b", "gpt2-tiny"), (r"llama3\.2-1b", "llama3-tiny"), (r"\b1024\b", "4"),
    (r"16,32,64,128", "2,4"), (r"devices = \[8, 16, 32, 64, 128, 256\]", "devices = [1, 2]"), (r"devices = 64", "devices = 2"),
    (r"batch( ?= ?)\d+", r"batch\g<1>4"), (r"seq( ?= ?)\d+", r"seq\g<1>64"), (r"fsdp=(8|16)", "fsdp=2"),
    (r"--largest seq", "--largest mbs"), (r"remat = .*", 'remat = "full"\nmbs = 1\ntp = 1\npp = 1'),
    (r"\npp = 1\nremat", r"\nremat"), (r'\["0.25x", "0.5x", "1x", "2x"\]', '["1x"]'), (r'"(matrix.bf16|power.tdp)" = .*', ""),
)  # fmt: skip
FEWER = ("--try", "remat=full", "--try", "tp=1", "--try", "pp=1", "--top", "1")


def _smaller(text: str) -> str:
    for pattern, replacement in SMALLER:
        text = re.sub(pattern, replacement, text)
    return text


def test_the_page_has_the_questions() -> None:
    assert len(QUESTIONS) == 8


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered(question: str, meshcast: Meshcast) -> None:
    words = shlex.split(_smaller(question))
    if words[0] == "explore":
        Path("space.toml").write_text(_smaller((ROOT / words[1]).read_text(encoding="utf-8")))
        words[1] = "space.toml"
    if words[0] == "plan":
        words = [*words, *FEWER]
    answer = meshcast(*words, "--engine", "in-process", "--json")
    assert answer.code == 0, answer.err
    summary = answer.lines[-1]
    assert summary["schema"] == "meshcast.exploration/1"
    assert summary["best"][0]["step_time_s"] > 0
    if words[0] == "explore":
        assert "<svg" in Path("explore-space/plot.svg").read_text()
