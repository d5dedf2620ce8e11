"""The notebooks run top to bottom, and what they end cells with shows itself as HTML."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def shown_by(notebook: Path) -> list[Any]:
    """Runs the code cells in order, as a notebook does; what each ends with."""
    names: dict[str, Any] = {}
    shown = []
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), filename=f"{notebook.name}[{number}]")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, notebook.name, "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), notebook.name, "eval"), names))
    return shown


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = shown_by(notebook)
    assert any("<table>" in each._repr_html_() for each in shown if hasattr(each, "_repr_html_"))


def test_there_are_two_and_they_are_kept_without_outputs() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["choosing_a_cluster", "first_prediction"]
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
