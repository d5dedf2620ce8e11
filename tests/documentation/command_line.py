"""The command, run in the tests' own process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from unittest import mock

from meshcast.cli.app import run


def exit_code(words: Sequence[str]) -> int:
    """Runs a command, of which the first word is its name; the code with which it leaves."""
    with mock.patch.object(sys, "argv", list(words)):
        try:
            run()
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else 0
    return 0
