"""`meshcast predict TARGET... --on X`."""

from __future__ import annotations

from typing import Annotated

import typer

from meshcast.cli import arguments as flags


def predict_command(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="Files, module:function, or models of the zoo.")],
    on: flags.On = "h100-sxm",
    devices: flags.Devices = None,
    mesh: flags.MeshText = None,
    fidelity: flags.Fidelity = "auto",
    network: flags.Network = "alpha-beta",
    partitioner: flags.Partitioner = "shardy",
    dim: flags.Dims = None,
    trip_count: flags.TripCounts = None,
    setting: flags.Settings = None,
    approximate: flags.Approximate = False,
    json: flags.Json = False,
) -> None:
    """Predicts step time, memory, communication and energy of each TARGET."""
    from meshcast.cli.app import emit_json, report
    from meshcast.errors import MeshcastError
    from meshcast.pipeline import predict
    from meshcast.results.printer import print_prediction

    options = flags.options(
        on=on, devices=devices, mesh=mesh, fidelity=fidelity, network=network, dims=dim, trips=trip_count, settings=setting,
        approximate=approximate, partitioner=partitioner,
    )  # fmt: skip
    gravest = 0
    for target in targets:
        try:
            prediction = predict(target, options)
        except MeshcastError as error:
            report(error, as_json=json)
            gravest = max(gravest, error.exit_code)
            continue
        if json:
            emit_json(prediction.to_json())
        else:
            print_prediction(prediction)
        if not prediction.feasible:
            gravest = max(gravest, 3)
    if gravest:
        raise typer.Exit(gravest)
