"""The site of the docs: every page has its place, every link leads somewhere, and the glossary is that of the report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import meshcast
from meshcast.report import GLOSSARY
from tests.documentation.pages import ROOT


def test_every_page_has_a_place_on_the_site() -> None:
    named = set(re.findall(r"([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_the_glossary_is_that_of_the_report() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert rows == {word: text.replace("|", "\\|") for word, text in GLOSSARY.items()}


def test_the_reference_has_every_public_name_as_it_is_imported() -> None:
    """All that `import meshcast` has, old names aside, under the name that a reader writes and not that of its module."""
    stub = (ROOT / "src" / "meshcast" / "__init__.pyi").read_text(encoding="utf-8")
    old = set(re.findall(r"^from .* as (\w+)  # old name", stub, re.MULTILINE))
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    told = re.findall(r"^::: meshcast\.[\w.]+\.(\w+)\n    options: \{heading: meshcast\.(\w+), ", page, re.MULTILINE)
    assert {shown for _, shown in told} == set(meshcast.__all__) - old - {"__version__"}
    assert all(defined == shown for defined, shown in told)


@pytest.mark.skipif(
    find_spec("mkdocs") is None or find_spec("material") is None or find_spec("mkdocstrings") is None,
    reason="the extra docs is not installed",
)
def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    told = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    reference = (tmp_path / "site" / "reference.html").read_text(encoding="utf-8")
    assert "How a target will run" in reference
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)=["']?https?://[^"' >]+\.(?:js|css|woff2?)|unpkg|fonts.googleapis""", home)
