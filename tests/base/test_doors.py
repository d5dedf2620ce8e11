"""Doors: names that are loaded on first use, and old names, which work and warn."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

STUB = """from a_room.table import leg as leg
from a_room.table import leg as foot  # old name: write a_room.leg
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package with one name, which had another before."""
    package = tmp_path / "a_room"
    package.mkdir()
    (package / "table.py").write_text("leg = 4\n")
    (package / "__init__.pyi").write_text(STUB)
    door = "from meshcast.base.doors import door\n__getattr__, __dir__, __all__ = door(__name__)\n"
    (package / "__init__.py").write_text(door)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("a_room")
    for name in [each for each in sys.modules if each.partition(".")[0] == "a_room"]:
        del sys.modules[name]


def test_a_name_is_loaded_when_it_is_asked_for(room: ModuleType) -> None:
    assert "a_room.table" not in sys.modules
    assert room.leg == 4
    assert room.__all__ == ["leg"]
    with pytest.raises(AttributeError, match="no attribute 'lid'"):
        _ = room.lid


def test_an_old_name_works_and_warns(room: ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match=r"a_room\.foot is an old name: write a_room\.leg") as warned:
        assert room.foot == 4
    assert warned[0].filename == __file__  # the line that uses it is named, not ours
    assert "foot" not in dir(room)
    assert "foot" not in room.__all__
