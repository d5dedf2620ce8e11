"""The command line loads the verb that it runs, and tells the others by one line each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from meshcast.cli.app import VERBS, app, app_with


def test_the_list_of_verbs_says_what_their_own_help_does() -> None:
    loaded = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert list(loaded) == list(VERBS)
    for verb, summary in VERBS.items():
        assert str(loaded[verb].help).split("\n\n")[0] == summary
    assert CliRunner().invoke(app_with(()), ["--help"]).stdout == CliRunner().invoke(app, ["--help"]).stdout


def test_a_command_loads_one_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr("meshcast.cli.app.importlib.import_module", _recorded(imported))
    app_with(VERBS.keys() & {"meshcast", "--help"})
    assert imported == []
    app_with(VERBS.keys() & {"meshcast", "devices", "h200"})
    assert imported == ["meshcast.cli.devices"]


def _recorded(imported: list[str]) -> Callable[[str], Any]:
    def import_module(name: str) -> Any:
        imported.append(name)
        return sys.modules[name]

    return import_module
