"""`meshcast validate torch DIR`: our error on PyTorch's models, eager and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.judged import JUDGED, end_judgement, judged


@runs(
    "estimate",
    "run",
    instead={"on": "h200"},
    without=JUDGED
    | {"clocks": "rows are of short runs: burst", "--stack": "every row is PyTorch's, eager or compiled"},
)
def torch_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with cases.py and measurements.jsonl[.gz].")],
    asked: FlagValues,
    mode: Annotated[list[str] | None, typer.Option("--mode", help="Only eager, or only compiled.")] = None,
    apart: Annotated[
        list[str] | None,
        typer.Option("--apart", help="A case that nothing was tuned on, told first; may be given again."),
    ] = None,
    limit: flags.FirstRows = None,
    jobs: flags.Jobs = 1,
    json: flags.Json = False,
) -> None:
    """Predicts the cases of DIR with PyTorch's own kernels and compares step time, peak memory and the number of kernels.

    Needs torch and what the cases import. The exit code is 0 when the validation ran, even where rows failed: they are counted
    and named.
    """
    from meshcast.evidence import TorchSummary, print_torch, read_torch_runs, validate_torch

    runs = read_torch_runs(folder, modes=mode or ())[:limit]
    options = asked.options(clocks="burst")
    rows, interrupted = judged(validate_torch(runs, options, jobs=jobs), len(runs), "runs", json=json)
    summary = TorchSummary(rows=tuple(rows), apart=tuple(apart or ()), not_run=len(runs) - len(rows))
    end_judgement(summary.to_json(), lambda: print_torch(summary), json=json, interrupted=interrupted)
