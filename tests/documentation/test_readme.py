"""README.md shows what `make demo` prints today (`test_figures.py` compares it)."""

from __future__ import annotations

from tests.documentation.pages import ROOT, mentions
from tests.documentation.regions import regions

README = ROOT / "README.md"


def test_the_demo_is_the_command_that_the_page_names_and_shows() -> None:
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "/meshcast predict" in line)
    demo = ["meshcast", *line.split()[1:]]
    assert " ".join(demo) in {command.text for command in mentions(README)}
    assert demo in [region.command for region in regions(README) if not region.is_fill]
