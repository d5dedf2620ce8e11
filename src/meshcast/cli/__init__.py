"""The command line: parse, call, print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `meshcast` command."""
    from meshcast.cli.app import run

    run()
