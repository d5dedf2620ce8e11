"""`meshcast trace share TRACE -o FOLDER [--coarsen 5%]`, and with `--against` a search for what should be gone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.patience import patience


def trace_share_command(
    target: Annotated[str, typer.Argument(metavar="TRACE", help="Chakra traces of a job: a prefix, a folder, a file.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FOLDER", help="Where traces without names go.")
    ] = None,
    coarsen: Annotated[
        str | None, typer.Option("--coarsen", metavar="5%", help="Durations and sizes to the nearest step of 5 %.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="TRACE", help="Verify: what of this original is still in TRACE.")
    ] = None,
    json: flags.Json = False,
) -> None:
    """Writes traces of a job without names, shapes and clocks, or verifies that an original's are gone."""
    from meshcast.base import InputError, UsageError, ending_at_once, format_time
    from meshcast.cli.app import emit_json
    from meshcast.jobs import find_traces
    from meshcast.traces import parse_coarseness, share_traces, verify_shared

    if (out is None) == (against is None):
        raise UsageError(
            "one of -o and --against is needed", where="trace share", fix="-o FOLDER, or --against ORIGINAL"
        )
    if against is not None:
        found = verify_shared(find_traces(target), find_traces(against))
        if json:
            emit_json({"schema": "meshcast.shared/1", "leaks": found})
        if found:
            raise InputError(
                f"{len(found)} names, paths or shapes of {against} are in it: {', '.join(found[:5])}", where=target,
                fix="write it with meshcast trace share",
            )  # fmt: skip
        if not json:
            typer.echo("no name, path or shape of the original is in it")
        return
    assert out is not None
    with ending_at_once(as_json=json), patience("sharing"):
        said = share_traces(find_traces(target), out, parse_coarseness(coarsen) if coarsen else 0.0)
    if json:
        emit_json({"schema": "meshcast.shared/1", **said})
        return
    typer.echo(
        f"{said['nodes']:,} nodes of {said['ranks']} ranks in {out}; taken out: {said['names_removed']:,} names, shapes and "
        f"values of {said['values_removed']:,} nodes, {', '.join(said['attributes_removed']) or 'no attributes'}"
    )
    typer.echo(f"left: order, waits, groups, and {', '.join(said['left'])}")
    before, after = said["replay_before_s"], said["replay_after_s"]
    if before is None or after is None:
        typer.echo(f"it has no durations to replay; sizes differ by {said['bound']:.1%} at most by coarsening")
        return
    typer.echo(
        f"replay {format_time(before)} before, {format_time(after)} after; at most {said['bound']:.1%} by coarsening"
    )
