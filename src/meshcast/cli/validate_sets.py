"""`meshcast validate sets FILE.toml`: our error on many folders of measured programs, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.base import UsageError, write_whole
from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues
from meshcast.cli.judged import MEASURED, end_judgement, judged, runs_programs

_DEFAULT = ("profiled", "analytical")


@runs_programs(
    instead={"on": "h200"},
    without=MEASURED
    | {
        "fidelity": "it takes several",
        "lowering": "kernels are modelled, but for the fidelity compiled",
    },
)
def sets_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="[[sets]] with name, folder (beside the file) and seen.")
    ],
    asked: FlagValues,
    fidelity: Annotated[
        list[str] | None,
        typer.Option("--fidelity", help="A column; may be given again (otherwise profiled and analytical)."),
    ] = None,
    limit: flags.FirstRows = None,
    jobs: flags.Jobs = 1,
    markdown: flags.MarkdownPage = None,
    json: flags.Json = False,
) -> None:
    """Predicts every set of measured programs that FILE names, and says how far each fidelity is off on each.

    Kernels are modelled but for the fidelity compiled, which has the compiler's own. Sets of which no row was looked at come
    first. The exit code is 0 when the validation ran, even where rows failed: they are counted. Ctrl-C prints the sets done so
    far and exits with 130.
    """
    from meshcast.evidence import SetsSummary, print_sets, read_sets, rows_command, sets_page, validate_sets
    from meshcast.options import check_fidelity

    columns = tuple(dict.fromkeys(fidelity or _DEFAULT))
    for each in columns:
        if each == "auto":
            raise UsageError(
                "auto is another fidelity for every program", where="--fidelity", fix="name one for each column"
            )
        check_fidelity(each)
    sets, about = read_sets(file, limit=limit)
    total = len(sets) * len(columns)
    options = asked.options()
    found = validate_sets(sets, columns, options, jobs=jobs)
    figures, interrupted = judged(found, total, "sets and fidelities", json=json)
    summary = SetsSummary(figures=tuple(figures), fidelities=columns, not_run=total - len(figures))
    if markdown is not None and not interrupted:
        named = "".join(f" --fidelity {each}" for each in columns)
        write_whole(
            markdown,
            sets_page(
                summary, about=about, command=rows_command("sets", file, f" --on {options.on}{named}"), page=markdown
            ),
        )
    end_judgement(summary.to_json(), lambda: print_sets(summary), json=json, interrupted=interrupted)
