"""`meshcast trace TARGET --on X --format chakra|perfetto|kineto|stablehlo -o OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed, traced_names
from meshcast.cli.flags import STAGES, FlagValues, runs
from meshcast.cli.patience import patience
from meshcast.traces import FORMAT_NAMES


@runs(
    *STAGES,
    without={
        "levers": "a trace is of one answer, and says nothing about others",
        "what_if": "a trace is of one answer, and says nothing about others",
        "durations": "they are of traces that are predicted, and a trace is written of a program",
    },
)
def trace_command(
    target: Annotated[
        str,
        typer.Argument(
            autocompletion=completed(traced_names),
            metavar="TARGET",
            help="A file, module:function, or a model of the zoo.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="A file, or the prefix of one a rank.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="; ".join(f"{name}: {what}" for name, what in FORMAT_NAMES.items()) + ".",
        ),
    ],
    ranks: Annotated[
        str | None,
        typer.Option("--ranks", metavar="0-7,16", help="Some ranks alone, or all; timelines have one of each kind."),
    ] = None,
    unroll: Annotated[
        bool | None,
        typer.Option("--unroll/--no-unroll", help="Every turn of a loop, or one that stands for all of them."),
    ] = None,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="One file for ranks that are equal, and a manifest that says which are.")
    ] = False,
    schema: Annotated[str, typer.Option("--schema", help="Of Chakra: current, or v0.0.4.")] = "current",
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Name what every node reads and writes, with its bytes.")
    ] = True,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Leave out names, places in the source and constants of the program.")
    ] = False,
    coarsen: Annotated[
        str | None, typer.Option("--coarsen", metavar="5%", help="With --anonymise: sizes to the nearest step of 5 %.")
    ] = None,
    *,
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Writes how TARGET will run as a trace that other tools read."""
    from meshcast.base import ending_at_once
    from meshcast.cli.app import emit_json
    from meshcast.traces import TraceRequest, write_trace

    request = TraceRequest(
        target=target,
        options=asked.options(),
        out=out,
        ranks=ranks,
        unroll=unroll,
        dedup=dedup,
        schema=schema,
        memory=memory,
        anonymise=anonymise,
        coarsen=coarsen,
    )
    with ending_at_once(as_json=json), patience(f"tracing {target}"):
        written = write_trace(form, request, lambda line: typer.echo(line, err=True))
    if json:
        emit_json({"schema": "meshcast.trace/1", **written.summary})
        return
    for line in written.lines:
        typer.echo(line)
