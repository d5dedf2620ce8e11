"""`meshcast validate plans FILE.csv`: would we have picked the plan that was the fastest?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.judged import ROWS, judged
from meshcast.cli.patience import INTERRUPTED


@runs("lowering", "estimate", "network", "run", without=ROWS | {"--stack": "every row names its software"})
def plans_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Runs, as validate runs takes them.")],
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="REGEX", help="Rows whose id, source, device or model it is found in."),
    ] = None,
    any_batch: Annotated[
        bool, typer.Option("--any-batch", help="Compare runs of other batches too, by the time of a sequence.")
    ] = False,
    *,
    asked: FlagValues,
    jobs: flags.Jobs = 1,
    json: flags.Json = False,
) -> None:
    """Predicts runs that differ in their plan only, and says whether the plan that we would pick was the fastest.

    A pick within 3 % of the fastest is good. The exit code is 0 when the validation ran; groups of which fewer than two
    runs were predicted count as failed.
    """
    from meshcast.base import UsageError
    from meshcast.cli.app import emit_json
    from meshcast.evidence import choices_json, chosen_runs, plan_choices, plan_groups, read_run_rows, validate_runs
    from meshcast.options import check_fidelity
    from meshcast.results import Section, columns, percent, print_sections

    options = asked.options().of_many
    check_fidelity(options.estimate.fidelity)
    options.check_choices()
    groups = plan_groups(chosen_runs(read_run_rows(file), only=only, limit=None), any_batch=any_batch)
    if not groups:
        more = "give rows that are alike but for dp, fsdp, tp, pp and their like"
        fix = more if any_batch else f"--any-batch compares more of them; or {more}"
        raise UsageError("no two runs differ in their plan only", where=str(file), fix=fix)
    rows = [row for members in groups.values() for row in members]
    found = validate_runs(rows, options, over_memory=True, jobs=jobs)
    results, interrupted = judged(found, len(rows), "runs", json=False)
    choices = plan_choices(groups, results)
    summary = choices_json(choices, len(groups), any_batch=any_batch)
    if json:
        for choice in choices:
            emit_json(choice.to_json())
        emit_json(summary)
    else:
        told = [
            (
                each.name,
                str(len(each.results)),
                each.pick.row.id,
                each.best.row.id,
                percent(each.regret),
                "" if (rank := each.spearman) is None else f"{rank:.2f}",
            )
            for each in choices
        ]
        good = f"{summary['good']} of {len(choices)} picks are the fastest or within 3 % of it"
        titles = columns("~runs that differ in their plan", ">runs", "~picked", "~fastest", ">slower by", ">Spearman")
        print_sections([Section(title="plans that we would pick", columns=titles, rows=told, note=good)])
    if interrupted:
        raise typer.Exit(INTERRUPTED)
