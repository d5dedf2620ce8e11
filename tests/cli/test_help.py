"""Help ends with examples that the parser takes; shells complete verbs, flags and names; tables keep to the width."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from typing import Any

import pytest
import typer

from meshcast.base import listening, python_command, tell
from meshcast.cli.app import VERBS, app
from meshcast.cli.examples import EXAMPLES
from tests.cli.conftest import Meshcast

COMMANDS: dict[str, Any] = {}  # by what is typed, those of verbs that have some among them
for _verb, _command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
    COMMANDS |= {
        _verb: _command,
        **{f"{_verb} {name}": each for name, each in getattr(_command, "commands", {}).items()},
    }


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_help_has_examples_that_the_parser_takes(verb: str) -> None:
    command = COMMANDS[verb]
    context = command.make_context(verb, [], resilient_parsing=True)
    text = command.get_help(context)
    for line in EXAMPLES[verb]:
        assert line in text
        words = shlex.split(line.partition(" > ")[0])
        named = ["meshcast", *verb.split()]
        assert words[: len(named)] == named
        parsed = command
        rest = words[len(named) :]
        if hasattr(command, "commands"):
            parsed, rest = command.commands[rest[0]], rest[1:]
        parsed.make_context(verb, rest, resilient_parsing=False)


def test_help_is_asked_for_in_every_way(meshcast: Meshcast) -> None:
    whole = meshcast("--help").out
    assert meshcast("-h").out == meshcast("help").out == whole
    assert "..." not in whole.partition("Commands:")[2], "no summary is cut off"
    assert meshcast("help", "predict").out == meshcast("predict", "-h").out == meshcast("predict", "--help").out


def test_the_help_of_all_verbs_has_examples_too(meshcast: Meshcast) -> None:
    told = meshcast("--help").out
    assert all(line in told for line in EXAMPLES[""])
    assert {shlex.split(line)[1] for line in EXAMPLES[""]} <= set(VERBS)


def test_examples_are_of_verbs_that_there_are() -> None:
    assert set(EXAMPLES) == {"", *COMMANDS}
    assert set(VERBS) <= set(COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(meshcast: Meshcast, shell: str) -> None:
    answer = meshcast("completion", shell)
    assert answer.code == 0
    assert "_MESHCAST_COMPLETE" in answer.out
    if (
        shell == "zsh"
    ):  # whose file is first run for something to complete, and must not only say who will the next time
        assert "loadautofunc" in answer.out
    assert meshcast("completion", "tcsh").code == 2


@pytest.mark.parametrize(
    ("line", "place", "completed"),
    [
        ("meshcast pre", 1, "predict"),
        ("meshcast serve --por", 2, "--port"),
        ("meshcast predict llama3-tin", 2, "llama3-tiny"),
        ("meshcast predict llama3-tiny --on dgx-h2", 4, "dgx-h200"),
        ("meshcast compare llama3-tiny --on h200,dgx-h2", 4, "h200,dgx-h200"),
        ("meshcast predict llama3-tiny --fidelity roof", 4, "roofline"),
        ("meshcast predict llama3-tiny --contention of", 4, "off"),
        ("meshcast predict llama3-tiny --stack pytorch-ea", 4, "pytorch-eager"),
        ("meshcast trace lin", 2, "link"),
    ],
)
def test_verbs_flags_and_names_are_completed(line: str, place: int, completed: str) -> None:
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(place), "_MESHCAST_COMPLETE": "complete_bash"}
    told = subprocess.run(python_command("meshcast"), env={**os.environ, **asked}, capture_output=True, text=True)
    assert (told.returncode, told.stdout.split()) == (0, [completed])


@pytest.mark.parametrize("verb", [("devices",), ("models", "llama3-tiny"), ("stacks",), ("devices", "h200")])
def test_tables_keep_to_the_width_when_they_are_piped(
    meshcast: Meshcast, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    text = meshcast(*verb).out
    assert "\x1b" not in text, "no colour in a pipe"
    assert max(map(len, text.splitlines())) <= 70


def test_how_long_the_rest_takes_is_told_once_there_is_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with listening(heard.append):
        now = 101.0
        tell("1 of 10", done=1, total=10)
        now = 106.0
        tell("3 of 10", done=3, total=10)
        tell("10 of 10", done=10, total=10)
        tell("cleaning up")
    assert heard == ["1 of 10", "3 of 10, about 14 s left", "10 of 10", "cleaning up"]
    tell("to nobody", done=1, total=2)
