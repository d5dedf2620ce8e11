"""Plans of others: torchrec's words and ranks, and what is no plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshcast.base import MeshcastError
from meshcast.jobs import EmbeddingTable, Sharding, TrainerRanks, read_plan

TABLES = [EmbeddingTable(name="a", rows=100, dim=64), EmbeddingTable(name="b", rows=100, dim=64)]
RANKS = TrainerRanks(devices=16, node=8, batch=4)


def _read(tmp_path: Path, content: Any) -> list[tuple[str, tuple[int, ...]]]:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content))
    return [(str(placed.sharding), placed.places) for placed in read_plan(path, TABLES, RANKS)]


def test_torchrecs_words_and_ranks_are_understood(tmp_path: Path) -> None:
    said = [
        {"table": "b", "sharding": "table_row_wise", "ranks": list(range(8, 16))},
        {"table": "a", "sharding_type": "column_wise", "ranks": [3, 5]},
    ]
    assert _read(tmp_path, said) == [("column/2", (3, 5)), ("table-row", (1,))]
    rows = [
        {"table": "a", "sharding": "row_wise", "ranks": list(range(16))},
        {"table": "b", "sharding": "data_parallel"},
    ]
    assert _read(tmp_path, rows) == [(str(Sharding(way="row")), ()), (str(Sharding(way="data")), ())]


def test_our_own_answer_is_a_plan(tmp_path: Path) -> None:
    """As `--json` prints it: places are ranks, or nodes of ways that take whole ones."""
    said = [
        {"table": "a", "sharding": "column", "columns": 2, "places": [3, 5]},
        {"table": "b", "sharding": "grid", "columns": 2, "places": [0, 1]},
    ]
    assert _read(tmp_path, {"schema": "meshcast.tables-plan/1", "plan": said}) == [
        ("column/2", (3, 5)),
        ("grid/2", (0, 1)),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "no list"),
        ([{"table": "a", "sharding": "table", "ranks": [0]}], "has no table 'b'"),
        ([{"table": name, "sharding": "table", "ranks": [16]} for name in "ab"], "of 16"),
        ([{"table": name, "sharding": "table", "ranks": [0, 1]} for name in "ab"], "2 ranks for 64 columns"),
        ([{"table": name, "sharding": "table", "ranks": [True]} for name in "ab"], "True"),
        ([{"table": name, "sharding": "row"} for name in "aba"], "says twice where 'a' is"),
        ([{"table": name, "sharding": "spiral", "ranks": [0]} for name in "ab"], "no sharding"),
    ],
)
def test_what_is_no_plan_is_told(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(MeshcastError, match=said):
        _read(tmp_path, content)
