"""Every piece of Python in README.md and docs/ runs as it is written."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.documentation.pages import PAGES, Block, blocks
from tests.documentation.workspace import write_workspace

NOT_OURS = ("torch", "hta")  # pieces that use them run where they are installed
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


def _missing(block: Block) -> str:
    """A package that the piece needs and that is not here."""
    names = (name for name in NOT_OURS if re.search(rf"\b{name}\b", block.text))
    return next((name for name in names if importlib.util.find_spec(name) is None), "")


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_the_python_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The pieces of a page in order, each with the names of those before it."""
    monkeypatch.chdir(write_workspace(tmp_path))
    names: dict[str, object] = {"__name__": "__main__"}
    missing = ""
    for block in (block for block in blocks(page) if block.language == "python"):
        if lacks := _missing(block):
            missing = lacks
            continue
        # Line numbers of the page, so that a failure names its line.
        exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
    if len(names) <= 2:  # with the interpreter's own: nothing was run
        pytest.skip(f"{missing} is not installed")
