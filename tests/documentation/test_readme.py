"""README.md shows what `make demo` prints today."""

from __future__ import annotations

import re

import pytest

from tests.documentation.command_line import exit_code
from tests.documentation.pages import ROOT, blocks, mentions

README = ROOT / "README.md"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
BAR = re.compile(r"\s*█*$")
# Releases of jax lower a model somewhat differently, so figures are compared with a margin and not by the letter.
MARGIN = 0.03


def _demo() -> list[str]:
    """The words of the demo, as the Makefile has them."""
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "/meshcast predict" in line)
    return ["meshcast", *line.split()[1:]]


def test_the_demo_is_the_command_that_the_page_names() -> None:
    assert " ".join(_demo()) in {command.text for command in mentions(README)}


def test_the_page_shows_what_the_demo_prints(capfd: pytest.CaptureFixture[str]) -> None:
    shown = next(
        block for block in blocks(README) if block.lines and block.lines[0].startswith("llama3-8b on 64")
    ).lines
    assert exit_code(_demo()) == 0
    printed = capfd.readouterr().out.splitlines()[: len(shown)]
    for left, right in zip(shown, printed, strict=True):
        left, right = BAR.sub("", left), BAR.sub("", right)
        assert " ".join(NUMBER.sub("#", left).split()) == " ".join(NUMBER.sub("#", right).split())
        for old, new in zip(NUMBER.findall(left), NUMBER.findall(right), strict=True):
            was, now = (float(text.replace(",", "")) for text in (old, new))
            assert now == pytest.approx(was, rel=MARGIN, abs=0.3), f"{left!r} is now {right!r}"
