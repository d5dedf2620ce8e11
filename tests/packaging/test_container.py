"""The container file, as far as it can be read: what it copies is there, and what it starts takes its flags."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import typer

from meshcast.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()


def _said(word: str) -> list[str]:
    return [line.removeprefix(word).strip() for line in LINES if line.startswith(f"{word} ")]


def test_what_is_copied_is_in_the_repository() -> None:
    copied = [name for line in _said("COPY") if not line.startswith("--from") for name in line.split()[:-1]]
    assert len(copied) >= 4
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_what_is_installed_is_named_by_the_package() -> None:
    (extra,) = re.findall(r"'\.\[([\w,-]+)\]'", " ".join(_said("RUN")))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extra.split(",")) <= set(extras)
    assert "requirements.lock" in " ".join(_said("RUN"))


def test_what_is_started_takes_its_flags_and_listens_where_the_port_is_exposed() -> None:
    (entry,) = _said("ENTRYPOINT")
    program, verb, *flags = json.loads(entry)
    assert program == "meshcast"
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    given = command.make_context(verb, flags).params
    assert (given["host"], str(given["port"])) == ("0.0.0.0", _said("EXPOSE")[0])
    assert str(given["runs"]) == _said("VOLUME")[0]
