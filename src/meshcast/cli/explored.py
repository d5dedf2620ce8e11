"""What verbs that search say in the end: the answer as a table or as JSON, and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from meshcast.cli.patience import INTERRUPTED

if TYPE_CHECKING:
    from meshcast.explore import Exploration


def tell_exploration(found: Exploration, title: str, *, json: bool, folder: Path | None = None) -> None:
    """Prints what a search has found.

    Args:
        found: What it has found.
        title: Of the table.
        json: Whether one JSON object is printed instead.
        folder: A run folder of which a line for each point comes before that; None: none is asked for.

    Raises:
        typer.Exit: It was interrupted, or no point runs and keeps to the limits.
    """
    from meshcast.cli.app import emit_json
    from meshcast.explore import ordered, price_notes, print_exploration

    if json:
        for line in found.point_lines(ordered(folder)) if folder is not None else ():
            emit_json(line)
        emit_json(found.to_json())
    else:
        print_exploration(found, title=title)
        for note in price_notes(found):
            typer.echo(note)
        if found.tally.below_bounds:
            typer.echo(
                f"{found.tally.below_bounds} predicted steps are below their bounds, which is a bug: search = "
                '"exhaustive" leaves nothing out'
            )
        for why, count in found.tally.alone.most_common():
            typer.echo(
                f"{count:,} points of which hardware alone differs were worked out one by one, which is slow: {why}"
            )
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not found.best:
        raise typer.Exit(3)
