"""Modules by the names that they had before 0.2.0."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator

import pytest

import meshcast
from meshcast.base.old_modules import MOVED, new_name


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Old names are imported anew, and leave nothing behind."""
    old = [f"meshcast.{name}" for name in MOVED]

    def forget() -> None:
        for name in [each for each in sys.modules if each in old or each.rpartition(".")[0] in old]:
            del sys.modules[name]
        for name in MOVED:
            vars(meshcast).pop(name.partition(".")[0], None)

    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("mesh", "Group"),
        ("plans", "Plan"),
        ("plans", "plan_target"),
        ("models", "zoo"),
        ("export.formats", "TraceRequest"),
        ("export.formats", "write_trace"),
        ("measured", "read_traces"),
        ("profiles.profile", "read_profile"),
        ("deadlocks", "check_programs"),
        ("errors", "UsageError"),
        ("units", "format_bytes"),
    ],
)
def test_documented_names_are_found_where_they_were(old: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"meshcast.{old.partition('.')[0]} is an old name") as caught:
        module = importlib.import_module(f"meshcast.{old}")
    home = importlib.import_module(str(new_name(f"meshcast.{old}")))
    assert getattr(module, name) is getattr(home, name)
    assert all("import meshcast." in str(each.message) for each in caught)


def test_every_moved_module_is_there() -> None:
    for name in MOVED.values():
        assert importlib.util.find_spec(f"meshcast.{name}") is not None, name
    for name in MOVED:
        assert name not in meshcast.__all__


def test_the_warning_names_the_line_that_imports() -> None:
    with pytest.warns(DeprecationWarning, match="old name") as caught:
        exec("from meshcast.plans import Plan")
    assert {each.filename for each in caught} <= {"<string>", __file__}


def test_a_package_whose_name_is_a_function_says_where_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"capture is a function since 0\.2\.0; .* meshcast\.programs"):
        importlib.import_module("meshcast.capture.program")
    assert callable(meshcast.capture)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'meshcast\.nothing'"):
        importlib.import_module("meshcast.nothing")
