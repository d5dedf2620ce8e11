"""Every command of README.md and docs/ runs as it is written; every flag that they name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from meshcast.base.child import child_environment
from meshcast.cli.app import VERBS, app
from tests.documentation.command_line import exit_code
from tests.documentation.pages import PAGES, ROOT, Command, commands, mentions, prose
from tests.documentation.running import lacks_an_extra, not_run, words_of
from tests.documentation.workspace import told_to_save, write_workspace
from tests.evidence.calibrate.small_cpu import measure_little

WITH_COMMANDS = [page for page in PAGES if commands(page)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_every_command_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The commands of a page in order, in one folder, as a reader would type them."""
    monkeypatch.chdir(write_workspace(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    measure_little(monkeypatch)
    ran: set[str] = set()
    for command in commands(page):
        if command.is_synopsis or not_run(command.text) or command.text in ran:
            continue
        ran.add(command.text)
        if command.text == "make demo":
            continue  # test_readme.py
        words = words_of(command.text)
        if words[0] == "python":  # the reader's own program, which the page has told to save
            done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True)
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            code = exit_code(words)
            out, err = capfd.readouterr()
        assert "Traceback" not in err, f"{command}\n{err}"
        if code == 4 and lacks_an_extra(err):
            continue
        assert code == 0, f"{command}\nexit code {code}\n{err}"
        assert out.strip(), f"{command} says nothing"


def test_the_tour_has_every_verb() -> None:
    page = ROOT / "docs" / "commands.md"
    told = {command.text for command in [*commands(page), *mentions(page)]} | set(
        re.findall(r"`(meshcast [^`]+)`", page.read_text(encoding="utf-8"))
    )
    assert {verb for verb in VERBS if not any(f"{each} ".startswith(f"meshcast {verb} ") for each in told)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_flag_and_file_is_there(page: Path) -> None:
    """Synopses, commands in running text and those that are too long to run name verbs, flags and files that exist."""
    for command in [*commands(page), *mentions(page)]:
        words = command.text.split()
        if words[0] == "meshcast":
            missing = [flag for flag in _flags(command.text) if flag not in _known_flags(command)]
            assert not missing, f"{command}: no such flag: {missing}"
        elif words[0] == "python" and words[1].endswith(".py"):
            assert (ROOT / words[1]).is_file() or words[1] in told_to_save(), f"{command}: no such file"
        elif words[:2] == ["python", "-m"]:
            assert _is_module(words[2]), f"{command}: no such module"


def _is_module(name: str) -> bool:
    """Whether `python -m NAME` finds a module of ours, a package of ours that runs, or one of Python's own."""
    path = name.replace(".", "/")
    ours = (ROOT / "src" / f"{path}.py", ROOT / f"{path}.py", ROOT / path / "__main__.py")
    return name in sys.stdlib_module_names or any(file.is_file() for file in ours)


def test_every_make_target_is_there() -> None:
    targets = {
        target
        for page in PAGES
        for text in [
            *re.findall(r"`([^`]+)`", page.read_text(encoding="utf-8")),
            *(command.text for command in commands(page)),
        ]
        for target in re.findall(r"^make ([a-z][a-z-]*)", text)
    }
    assert {"demo", "test"} <= targets
    _recipes(*sorted(targets))


def test_the_quick_tests_are_where_the_makefile_says() -> None:
    named = re.findall(r"(?<=\s)tests/[\w/.]+", _recipes("check").rpartition(" -m pytest ")[2])
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_and_file_that_is_linked_is_there() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", prose(page)):
            assert (page.parent / link).exists(), f"{page.name}: no {link}"
        for name in re.findall(
            r"`(docs/[\w-]+\.md|(?:examples|benchmarks|data)/[\w./-]+)`", page.read_text(encoding="utf-8")
        ):
            assert (ROOT / name).exists(), f"{page.name}: no {name}"


def _recipes(*targets: str) -> str:
    """The commands that `make` would run."""
    done = subprocess.run(
        ["make", "--dry-run", *targets],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _flags(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text)


@cache
def _verbs() -> Any:
    """All verbs with their parameters."""
    return typer.main.get_command(app)


def _known_flags(command: Command) -> set[str]:
    """The flags of the verb that a command begins with."""
    found = _verbs()
    known = {"--help", "--version"}
    words = command.text.split()[1:]
    if " ".join(words[:2]) in getattr(found, "commands", ()):
        words = [" ".join(words[:2]), *words[2:]]
    for word in words:
        if not hasattr(found, "commands"):  # no group of verbs
            break
        assert word in found.commands, f"{command}: no such verb: {word}"
        found = found.commands[word]
    for parameter in found.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    return known
