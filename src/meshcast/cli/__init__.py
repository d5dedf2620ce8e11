"""The command line: parse, call, print."""

from __future__ import annotations

import os


def main() -> None:
    """Entry point of the `meshcast` command."""
    # XLA's start-up notes ("device count: ...") are not for our users; its warnings and errors are.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from meshcast.cli.app import run

    run()
