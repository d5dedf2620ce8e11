"""`meshcast predict TARGET... --on X`."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import STAGES, FlagValues, runs
from meshcast.cli.patience import patience

if TYPE_CHECKING:
    from meshcast.options import Options
    from meshcast.results import Prediction


@runs(*STAGES, without={})
def predict_command(
    targets: flags.Targets,
    asked: FlagValues,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="TABLES",
            help="Of a recommender, its embedding tables: a file or a list (meshcast tables lists), shared out as is fastest; on "
            "several devices, without a plan, those that are shipped for it.",
        ),
    ] = None,
    plot: flags.PlotFlag = None,
    json: flags.Json = False,
) -> None:
    """Predicts step time, memory, communication and energy of each TARGET."""
    from meshcast.base import BugError, MeshcastError, UsageError
    from meshcast.cli.app import emit_json, report
    from meshcast.cli.with_tables import predict_with_tables, recommender_called, shipped_tables
    from meshcast.jobs import predict
    from meshcast.results import print_prediction

    options = asked.options()
    if plot is not None:
        from meshcast.report import check_plot

        if len(targets) > 1:
            raise UsageError(f"{len(targets)} TARGETs, and --plot draws one", where="--plot", fix="give one TARGET")
        check_plot(plot)
    codes: set[int] = set()
    for target in targets:
        try:
            target = recommender_called(target)
            if (source := tables or shipped_tables(target, options)) is not None:
                predict_with_tables(target, source, options, json=json)
                continue
            with patience(f"working on {target}"):
                prediction = predict(target, options) if plot is None else _drawn(target, options, plot)
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


def _drawn(target: str, options: Options, plot: Path) -> Prediction:
    """The prediction, with its picture written: the parts of the step, and its kernels under the device's roofs."""
    from meshcast.jobs import predict_with_job
    from meshcast.report import prediction_data, prediction_figure, save_figure, subject_of

    prediction, job = predict_with_job(target, options)
    if prediction.feasible:
        sections = prediction_data(subject_of(prediction, job), traces=False)["sections"]
        save_figure(prediction_figure(prediction, sections.get("roofline")), plot)
    return prediction
