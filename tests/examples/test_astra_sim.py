"""The page on ASTRA-sim's conventions holds what its example prints."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("table", ["conventions", "measured"])
def test_the_tables_of_the_page_are_the_examples(table: str) -> None:
    made = runpy.run_path(str(ROOT / "examples" / "astra_sim" / "conventions.py"))[table]()
    assert made in (ROOT / "docs" / "astra-sim.md").read_text(encoding="utf-8")
