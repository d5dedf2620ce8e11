"""`meshcast report TARGET --on X -o report.html`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed, model_names
from meshcast.cli.flags import STAGES, FlagValues, runs
from meshcast.cli.patience import patience


@runs(*STAGES, without={"fidelity": "it takes several"})
def report_command(
    target: Annotated[
        str,
        typer.Argument(
            autocompletion=completed(model_names),
            metavar="TARGET",
            help="A file, module:function, a model of the zoo, traces; or a run folder of explore or compare.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The file, which ends in .html.")] = Path(
        "report.html"
    ),
    fidelity: Annotated[
        str, typer.Option("--fidelity", help="The report's; others behind commas are compared with it.")
    ] = "auto",
    *,
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Writes how TARGET will run as one HTML file that needs no network: what takes the time, and what would help.

    The exit code is 3 where it does not fit: the report says what is missing, and what would make it fit.
    """
    from meshcast.base import UsageError, ending_at_once, format_bytes
    from meshcast.cli.app import emit_json
    from meshcast.report import folder_kind, write_report

    first, *others = [name.strip() for name in fidelity.split(",") if name.strip()] or ["auto"]
    if folder_kind(target) is not None:
        if asked.written or others or first != "auto":
            raise UsageError(
                "a run folder has its answers already", where=target, fix="leave out everything but TARGET and -o"
            )
        options = None
    else:
        options = asked.options(fidelity=first)
    with ending_at_once(as_json=json), patience(f"working on {target}"):
        written = write_report(target, out, options, fidelities=others, command=["meshcast", *sys.argv[1:]])
    if json:
        emit_json(written.to_json())
    else:
        typer.echo(str(written))
        if written.prediction is not None and (lacking := written.prediction.infeasible) is not None:
            needed, there = format_bytes(lacking.demand), format_bytes(lacking.bound)
            typer.echo(f"meshcast: infeasible: {target} needs {needed} of memory, and a device has {there}", err=True)
    if written.prediction is not None and not written.prediction.feasible:
        raise typer.Exit(3)
