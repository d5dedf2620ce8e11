"""Imports point only backwards along the way of the data; nothing imports the command line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "meshcast"
# Leaves first; a package may import its own rank's name and anything of a lower rank.
RANKS = {
    name: rank
    for rank, names in enumerate(
        [
            ("version", "errors", "display", "progress", "interruption"),
            (
                "units",
                "mesh",
                "child",
                "reading",
                "cache",
                "ranks",
                "ranges",
                "overlaps",
                "nesting",
                "files",
                "garbage",
                "chakra",
                "measured",
            ),
            ("hardware", "models", "systolic"),
            ("simulators",),
            ("capture",),
            ("partition",),
            ("workload",),
            ("lower",),
            ("profiles",),
            ("estimate", "network"),
            ("simulate",),
            ("results",),
            (
                "options",
                "option_types",
                "fidelities",
                "feasibility",
                "collectives",
                "shares",
                "mixed",
                "deadlocks",
                "stacks",
                "capped",
                "trust",
            ),
            ("run", "device_count"),
            ("pipelined", "traced"),
            ("bodies",),
            ("plans", "serving"),
            ("described",),
            ("levers",),
            ("pipeline",),
            ("validate", "calibrate", "comparison", "export"),
            ("cli",),
        ]
    )
    for name in names
}
SAME_RANK_STRANGERS = {
    ("estimate", "network"),
    ("network", "estimate"),
    ("hardware", "models"),
    ("models", "hardware"),
    ("hardware", "systolic"),
    ("systolic", "hardware"),
    ("models", "systolic"),
    ("systolic", "models"),
    ("validate", "calibrate"),
    ("calibrate", "validate"),
    ("comparison", "validate"),
    ("validate", "comparison"),
    ("comparison", "calibrate"),
    ("calibrate", "comparison"),
}


def _top(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def _imports(tree: ast.AST) -> list[str]:
    """Modules imported at run time, at any depth; imports for type checkers alone do not count.

    `shares`, `mixed` and `capped` name `Run` in their signatures so: they are parts of `run`, cut out of it for length,
    are called by it alone, and run nothing of it on import. `options` names `Stack`, which a caller hands to it.
    """
    found: list[str] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("meshcast"):
            # `from meshcast import models` names packages; `from meshcast.mesh import Mesh` names things in one.
            found += [f"meshcast.{alias.name}" for alias in node.names] if node.module == "meshcast" else [node.module]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("meshcast")]
        found += _imports(node)
    return found


FRONTS = {"__init__", "__main__"}  # of the whole package: they name what lies anywhere in it
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem not in FRONTS)
PARTS = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_backwards(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0].removesuffix(".py")
    assert own in RANKS, f"{own} has no place in the architecture"
    for module in _imports(ast.parse(path.read_text())):
        other = _top(module)
        assert other in RANKS, f"{relative} imports {module}, which has no place in the architecture"
        assert RANKS[other] <= RANKS[own], f"{relative} ({own}) imports {module}: arrows point backwards only"
        assert (own, other) not in SAME_RANK_STRANGERS, (
            f"{relative} ({own}) imports {module}: they do not know each other"
        )


def test_strangers_are_pairs_of_one_rank() -> None:
    assert {len(pair) for pair in SAME_RANK_STRANGERS} == {2}
    for own, other in SAME_RANK_STRANGERS:
        assert own != other
        assert RANKS[own] == RANKS[other]
        assert (other, own) in SAME_RANK_STRANGERS


def test_every_module_and_package_has_a_place_and_every_place_is_taken() -> None:
    assert set(RANKS) == PARTS


def test_the_page_on_the_architecture_names_every_module_and_package() -> None:
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert {name for name in PARTS if f"`{name}.py`" not in page and f"`{name}/`" not in page} == set()


def test_modules_stay_small() -> None:
    """400 lines ask for a reason, 800 are a defect."""
    long = {
        str(p.relative_to(PACKAGE)): n for p in PACKAGE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400
    }
    assert not long
