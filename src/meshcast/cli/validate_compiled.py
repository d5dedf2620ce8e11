"""`meshcast validate compiled DIR`: our models against the real compiler's kernels and times."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues
from meshcast.cli.judged import JUDGED, end_judgement, judged, runs_programs


@runs_programs(
    instead={"on": "tpu-v6e", "fidelity": "analytical"},
    without=JUDGED | {"lowering": "modelled kernels are compared with the compiler's"},
)
def compiled_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with measurements.jsonl[.gz] and programs/ID.mlir[.gz].")
    ],
    asked: FlagValues,
    group: Annotated[list[str] | None, typer.Option("--group", help="Only this group; may be given again.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Programs of one op too, not whole models alone.")] = False,
    kept: Annotated[
        Path | None, typer.Option("--hlo", help="Take the compiler's programs from this folder's ID.hlo[.gz].")
    ] = None,
    limit: flags.FirstRows = None,
    jobs: flags.Jobs = 1,
    json: flags.Json = False,
) -> None:
    """Predicts the programs of DIR at a fidelity and as compiled, and compares the two: nothing measured is used.

    "measured" is the compiled prediction's. The compiler takes seconds to minutes a program, once: what it made is kept. The
    exit code is 0 when the validation ran, even where rows failed: they are counted and named.
    """
    from meshcast.estimate import read_measured_programs
    from meshcast.evidence import COMPILED_KIND, print_summary, summarise, validate_compiled

    programs = [p for p in read_measured_programs(folder, groups=group or ()) if every or group or p.whole_model][
        :limit
    ]
    found = validate_compiled(programs, asked.options(), kept=kept, jobs=jobs)
    rows, interrupted = judged(found, len(programs), "programs", json=json)
    summary = summarise(rows, not_run=len(programs) - len(rows))
    end_judgement(
        summary.to_json() | {"kind": COMPILED_KIND}, lambda: print_summary(summary), json=json, interrupted=interrupted
    )
