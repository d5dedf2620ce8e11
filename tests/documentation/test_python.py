"""Every piece of Python in README.md and docs/ runs as it is written."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.documentation.pages import PAGES, Block, blocks
from tests.documentation.workspace import write_workspace

NOT_OURS = ("torch", "hta")  # pieces that use them run where they are installed


def _needs(block: Block) -> str:
    """The package that a piece needs beside ours; empty where there is none."""
    return next((name for name in NOT_OURS if re.search(rf"\b{name}\b", block.text)), "")


def _pieces(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


# A page with pieces that need a package is a case for each, so that what is left out is told as skipped.
CASES = [(page, needs) for page in PAGES for needs in sorted({_needs(block) for block in _pieces(page)})]


@pytest.mark.parametrize(
    ("page", "needs"), CASES, ids=[f"{page.name}-{needs}".removesuffix("-") for page, needs in CASES]
)
def test_the_python_of_the_page_runs(
    page: Path, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The pieces of a page in order, each with the names of those before it."""
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    monkeypatch.chdir(write_workspace(tmp_path))
    names: dict[str, object] = {"__name__": "__main__"}
    for block in _pieces(page):
        if _needs(block) in ("", needs):
            # Line numbers of the page, so that a failure names its line.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
