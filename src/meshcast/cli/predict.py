"""`meshcast predict TARGET... --on X`."""

from __future__ import annotations

import traceback
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import STAGES, FlagValues, runs
from meshcast.cli.patience import patience


@runs(*STAGES, without={})
def predict_command(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="Files, module:function (which is run), or models of the zoo."),
    ],
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Predicts step time, memory, communication and energy of each TARGET."""
    from meshcast.base import BugError, MeshcastError
    from meshcast.cli.app import emit_json, report
    from meshcast.jobs import predict
    from meshcast.results import print_prediction

    options = asked.options()
    codes: set[int] = set()
    for target in targets:
        try:
            with patience(f"working on {target}"):
                prediction = predict(target, options)
        except MeshcastError as error:
            report(error, as_json=json)
            codes.add(error.exit_code)
            continue
        except Exception as error:  # a bug of ours in one target must not lose the answers to the others
            traceback.print_exc()
            report(BugError(f"{type(error).__name__}: {error}", where=target), as_json=json)
            codes.add(BugError.exit_code)
            continue
        if json:
            emit_json(prediction.to_json())
        else:
            print_prediction(prediction)
        if not prediction.feasible:
            codes.add(3)
    if codes:
        raise typer.Exit(1 if 1 in codes else max(codes))  # a bug is the gravest
