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
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="Files, module:function (which is run), or models of the zoo."),
    ],
    asked: FlagValues,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="TABLES",
            help="Of a recommender, its embedding tables: a file or a list (meshcast tables lists), shared out as is fastest.",
        ),
    ] = None,
    plot: flags.PlotFlag = None,
    json: flags.Json = False,
) -> None:
    """Predicts step time, memory, communication and energy of each TARGET."""
    from meshcast.base import BugError, MeshcastError, UsageError
    from meshcast.cli.app import emit_json, report
    from meshcast.jobs import predict
    from meshcast.results import print_prediction

    options = asked.options()
    if plot is not None:
        from meshcast.plots import check_plot

        if len(targets) > 1:
            raise UsageError(f"{len(targets)} TARGETs, and --plot draws one", where="--plot", fix="give one TARGET")
        check_plot(plot)
    codes: set[int] = set()
    for target in targets:
        try:
            if tables is not None:
                _with_tables(target, tables, options, json=json)
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
    from meshcast.plots import prediction_figure, save_figure
    from meshcast.report import prediction_data, subject_of

    prediction, job = predict_with_job(target, options)
    if prediction.feasible:
        sections = prediction_data(subject_of(prediction, job), traces=False)["sections"]
        save_figure(prediction_figure(prediction, sections.get("roofline")), plot)
    return prediction


def _with_tables(model: str, source: str, options: Options, *, json: bool) -> None:
    """A recommender of the zoo with tables that are given, in the fastest sharding that is found of them."""
    from meshcast.base import UsageError
    from meshcast.cli.app import emit_json
    from meshcast.cli.tables import print_plan
    from meshcast.tables import TablesQuestion, plan_tables, read_tables
    from meshcast.zoo import recommender_layers

    said_too = {
        "--plan": options.program.plan is not None, "--mesh": bool(options.program.mesh), "--what-if": bool(options.what_if),
        "--fidelity": options.estimate.fidelity != "auto", "--profile": options.estimate.profile is not None,
        "--simulator": options.estimate.simulator is not None,
    }  # fmt: skip
    if refused := [flag for flag, given in said_too.items() if given]:
        raise UsageError(
            f"{refused[0]} does not concern a recommender with tables of its own", where=refused[0],
            fix="leave it out: tables are shared out over all devices, the dense part is data-parallel, as eager PyTorch has it",
        )  # fmt: skip
    settings = dict(options.program.settings)
    known = {"batch": "65536", "precision": "float32", "wire": "f32"}
    if unknown := sorted(set(settings) - set(known)):
        raise UsageError(
            f"no setting {unknown[0]!r} of a recommender with tables", where="--set", fix="one of " + ", ".join(known)
        )
    said = known | settings
    if not said["batch"].isdigit():
        raise UsageError(f"batch={said['batch']!r} is no count of samples", where="--set", fix="write batch=65536")
    found = read_tables(source)
    host = options.run.host
    question = TablesQuestion(
        tables=found, on=str(options.on), devices=options.devices, batch=int(said["batch"]), dtype=said["precision"],
        layers=recommender_layers(model, features=len(found), dim=found[0].dim), wire=said["wire"],
        network=options.network.model, host="slow" if host in ("auto", "on") else host,
    )  # fmt: skip
    with patience(f"sharing out {len(found)} tables"):
        answer = plan_tables(question)
    if json:
        emit_json({**answer.to_json(), "model": model})
    else:
        print_plan(answer)
