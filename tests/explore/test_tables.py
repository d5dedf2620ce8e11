"""What a table of points has room for on a narrow terminal: what decides stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshcast.explore.tables import _in_order

TITLES = ["~nvlink.size", "plan", ">step", ">MFU", ">memory", ">$/M tokens"]


@pytest.mark.parametrize(
    ("objectives", "expected"),
    [
        (["time"], TITLES),
        (["time", "cost"], ["~nvlink.size", "plan", ">step", ">$/M tokens", ">MFU", ">memory"]),
        (["cost", "time"], ["~nvlink.size", "plan", ">$/M tokens", ">step", ">MFU", ">memory"]),
    ],
)
def test_what_decides_comes_first(objectives: list[str], expected: list[str]) -> None:
    exploration: Any = SimpleNamespace(objectives=[SimpleNamespace(name=name) for name in objectives])
    assert _in_order(exploration, TITLES, 2) == expected
