"""The command line: parse, call, print."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the `meshcast` command."""
    from meshcast.interruption import InterruptedCommand, listen

    listen()  # first of all: what is imported below takes a while
    # XLA's start-up notes ("device count: ...") are not for our users; its warnings and errors are.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        from meshcast.reading import start_reader

        start_reader(sys.argv[1:])
        from meshcast.cli.app import run

        run()
    except InterruptedCommand as interrupted:  # before the command line was read, or behind its end
        interrupted.say(as_json=False)
        sys.exit(interrupted.exit_code)
