"""The command, run in the tests' own process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from meshcast.cli.app import run


class Answer(NamedTuple):
    """What the command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Meshcast = Callable[..., Answer]


@pytest.fixture
def meshcast(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Meshcast:
    """The command, run in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["meshcast", *map(str, arguments)])
        code = 0
        try:
            run()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Answer(code, out, err)

    return call
