"""`meshcast validate collectives FILE.csv`: our error against collectives that others measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.base import UsageError, write_whole
from meshcast.cli import arguments as flags
from meshcast.cli.judged import end_judgement, judged


def collectives_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv",
            help="Columns id, hardware, devices, nodes, collective, bytes, time_us, busbw_GBps, notes.",
        ),
    ],
    limit: flags.FirstRows = None,
    leave_out: Annotated[
        str | None,
        typer.Option(
            "--leave-out",
            metavar="CLASS|each",
            help="Predict a class of hardware (H100, TPU v7, ...), or each, from the others and its data sheet.",
        ),
    ] = None,
    markdown: flags.MarkdownPage = None,
    json: flags.Json = False,
) -> None:
    """Predicts collectives that were measured, each on the system that its row names.

    The exit code is 0 when the validation ran, even where rows failed: they are counted and named. Ctrl-C prints the
    summary of the rows done so far and exits with 130.
    """
    from meshcast.evidence import (
        CollectivesSummary,
        collectives_page,
        print_collectives,
        read_collective_rows,
        rows_command,
        validate_collectives,
    )

    rows = read_collective_rows(file)[:limit]
    found = validate_collectives(rows, leave_out=leave_out)
    results, interrupted = judged(found, len(rows), "collectives", json=json)
    missed = len(rows) - len(results) if interrupted else 0
    summary = CollectivesSummary(results=tuple(results), not_run=missed, leave_out=leave_out)
    if markdown is not None and leave_out is not None:
        raise UsageError(
            "the page has both: with all parameters, and each class left out",
            where="--markdown",
            fix="leave out --leave-out or --markdown",
        )
    if markdown is not None and not interrupted:
        apart = CollectivesSummary(results=tuple(validate_collectives(rows, leave_out="each")), leave_out="each")
        command = rows_command("collectives", file, f" --limit {limit}" if limit else "")
        write_whole(markdown, collectives_page(summary, apart, command=command, page=markdown))
    end_judgement(summary.to_json(), lambda: print_collectives(summary), json=json, interrupted=interrupted)
