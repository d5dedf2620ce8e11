"""`meshcast validate ops FILE.csv`: our error against single ops that others measured on TPUs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from meshcast.base import write_whole
from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.judged import ROWS, end_judgement, judged


@runs("lowering", "estimate", "run", without=ROWS | {"clocks": "rows are of short runs: burst"})
def ops_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.csv", help="Columns id, source, chip, op, dtype, shape, time_us, notes.")
    ],
    asked: FlagValues,
    leave_out: Annotated[
        str | None,
        typer.Option(
            "--leave-out",
            metavar="shape|source",
            help="Collect measured kernels anew for every row, without rows of its shape or source.",
        ),
    ] = None,
    chip: Annotated[list[str] | None, typer.Option("--chip", help="Only this chip; may be given again.")] = None,
    op: Annotated[list[str] | None, typer.Option("--op", help="Only this op; may be given again.")] = None,
    grade: Annotated[list[str] | None, typer.Option("--grade", help="Only this grade; may be given again.")] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", help="At most so many rows of each chip, op and grade.", min=1)
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first rows of those.", min=1)] = None,
    jobs: flags.Jobs = 1,
    programs: Annotated[
        Path | None, typer.Option("--programs", help="Also write every row's StableHLO to this folder, ID.mlir.")
    ] = None,
    markdown: flags.MarkdownPage = None,
    json: flags.Json = False,
) -> None:
    """Predicts ops that were measured on TPUs, each as the program that was run, on its own chip.

    The exit code is 0 when the validation ran, even where rows failed: they are counted and named. Ctrl-C prints the
    summary of the rows done so far and exits with 130.
    """
    from meshcast.evidence import (
        OpsSummary,
        RowChoice,
        chosen_rows,
        ops_page,
        print_ops,
        read_op_rows,
        rows_command,
        validate_left_out,
        validate_ops,
        write_programs,
    )

    choice = RowChoice(chips=chip or (), ops=op or (), grades=grade or (), sample=sample, limit=limit)
    table = read_op_rows(file)
    rows = chosen_rows(table, choice)
    if programs is not None:
        unwritten = write_programs(rows, programs)
        if unwritten:
            said = f"{len(unwritten)} of {len(rows)} rows: {', '.join(unwritten)}"
            print(f"meshcast: no program could be written for {said}", file=sys.stderr)
    options = asked.options()
    found = (
        validate_ops(rows, options, jobs=jobs)
        if leave_out is None
        else validate_left_out(rows, table, options, leave_out, jobs=jobs)
    )
    results, interrupted = judged(found, len(rows), "ops", json=json)
    summary = OpsSummary(results=tuple(results), not_run=len(rows) - len(results))
    if markdown is not None and not interrupted:
        named = (("--chip", choice.chips), ("--op", choice.ops), ("--grade", choice.grades))
        words = f" --fidelity {options.estimate.fidelity}" + (f" --leave-out {leave_out}" if leave_out else "")
        words += "".join(f" {flag} {name}" for flag, names in named for name in names)
        words += "".join(f" {flag} {count}" for flag, count in (("--sample", sample), ("--limit", limit)) if count)
        write_whole(
            markdown,
            ops_page(summary, command=rows_command("ops", file, words), page=markdown),
        )
    end_judgement(summary.to_json(), lambda: print_ops(summary), json=json, interrupted=interrupted)
