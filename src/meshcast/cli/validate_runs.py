"""`meshcast validate runs FILE.csv`: our error against training runs that others measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from meshcast.base import UsageError, write_whole
from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.judged import ROWS, end_judgement, judged


@runs("lowering", "estimate", "network", "run", without=ROWS | {"--stack": "every row names its software"})
def runs_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv",
            help="Columns id, device, devices, model, step_time_s, and of what docs/runs.md lists what is known.",
        ),
    ],
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="REGEX", help="Rows whose id, source, device or model it is found in."),
    ] = None,
    limit: flags.FirstRows = None,
    over_memory: Annotated[
        bool,
        typer.Option(
            "--over-memory/--fitting",
            help="Time runs too that are predicted not to fit (they did run); they are marked.",
        ),
    ] = True,
    next_stack: Annotated[
        bool,
        typer.Option(
            "--next-stack",
            help="Predict each run with the stack most similar to its own, as for software that nobody looked at.",
        ),
    ] = False,
    *,
    asked: FlagValues,
    jobs: flags.Jobs = 1,
    job_files: Annotated[
        Path | None,
        typer.Option(
            "--job-files", metavar="FOLDER", help="Also write the file of every run: meshcast predict ID.toml."
        ),
    ] = None,
    markdown: flags.MarkdownPage = None,
    json: flags.Json = False,
) -> None:
    """Predicts published training runs, and compares seconds per step.

    Rows that lack something are named with what is missing, assumptions are printed (docs/runs.md). The exit code is 0
    when the validation ran, even where rows failed: they are counted and named. Ctrl-C prints the summary of the rows
    done so far and exits with 130.
    """
    from meshcast.evidence import (
        RunsSummary,
        chosen_runs,
        print_runs,
        read_run_rows,
        rows_command,
        runs_page,
        validate_runs,
        write_job_files,
    )
    from meshcast.options import check_fidelity

    if next_stack and job_files is not None:
        raise UsageError(
            "files of jobs have the stacks that runs had", where="--job-files", fix="leave --next-stack out"
        )
    rows = chosen_runs(read_run_rows(file), only=only, limit=limit)
    options = asked.options().of_many
    check_fidelity(fidelity := options.estimate.fidelity)
    options.check_choices()  # a misspelt one is the caller's mistake, not a failure of every row
    if job_files is not None and (lacking := write_job_files(rows, job_files)):
        said = f"{len(lacking)} of {len(rows)} rows, which lack something: {', '.join(lacking)}"
        print(f"meshcast: no file was written for {said}", file=sys.stderr)
    found = validate_runs(rows, options, over_memory=over_memory, jobs=jobs, job_files=job_files, switched=next_stack)
    results, interrupted = judged(found, len(rows), "runs", json=json)
    summary = RunsSummary(results=tuple(results), not_run=len(rows) - len(results))
    if markdown is not None and not interrupted:
        words = "".join(
            f" {flag} {value}" for flag, value in (("--only", only), ("--limit", limit)) if value is not None
        )
        words += ("" if over_memory else " --fitting") + (" --next-stack" if next_stack else "")
        write_whole(
            markdown,
            runs_page(summary, command=rows_command("runs", file, f" --fidelity {fidelity}{words}"), page=markdown),
        )
    end_judgement(summary.to_json(), lambda: print_runs(summary), json=json, interrupted=interrupted)
