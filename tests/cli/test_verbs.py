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


def test_a_parser_that_has_read_command_lines_is_as_a_new_one() -> None:
    """Tests of a process share one (`tests/conftest.py`)."""
    new, shared = (typer.main.get_command(each) for each in (app_with(VERBS), app))
    CliRunner().invoke(app, ["devices", "h200", "--json"])
    CliRunner().invoke(app, ["devices", "--no-such-flag"])
    assert len(_parameters(new)) > 100
    for one, other in zip(_parameters(new), _parameters(shared), strict=True):
        assert one == other


def _parameters(command: Any) -> list[dict[str, object]]:
    """What the verbs of a command line take, and what each is when nobody gives it."""
    verbs = [each for _, each in sorted(getattr(command, "commands", {}).items())]
    fields = ("name", "opts", "secondary_opts", "default", "multiple", "nargs", "required", "help", "envvar")
    own = [{field: getattr(each, field, None) for field in fields} for each in command.params]
    return own + [each for verb in verbs for each in _parameters(verb)]


def _recorded(imported: list[str]) -> Callable[[str], Any]:
    def import_module(name: str) -> Any:
        imported.append(name)
        return sys.modules[name]

    return import_module
