"""`meshcast predict TARGET... --on X`."""

from __future__ import annotations

import traceback
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.patience import patience


def predict_command(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="Files, module:function (which is run), or models of the zoo."),
    ],
    on: flags.On = "h100-sxm",
    devices: flags.Devices = None,
    mesh: flags.MeshText = None,
    plan: flags.PlanText = None,
    fidelity: flags.Fidelity = "auto",
    profile: flags.ProfileFlag = None,
    simulator: flags.SimulatorFlag = None,
    network: flags.Network = "alpha-beta",
    partitioner: flags.Partitioner = "shardy",
    lowering: flags.LoweringFlag = "auto",
    clocks: flags.ClocksFlag = "sustained",
    host: flags.HostFlag = "auto",
    scheduler: flags.SchedulerFlag = "latency-hiding",
    channels: flags.ChannelsFlag = 0,
    contention: flags.ContentionFlag = "on",
    overlap: flags.OverlapFlag = "",
    stack: flags.StackFlag = None,
    placement: flags.PlacementFlag = None,
    slow: flags.SlowDevices = None,
    links: flags.LinkConditions = None,
    background: flags.Background = None,
    fabric: flags.FabricFlag = None,
    beside: flags.OtherJobs = None,
    dim: flags.Dims = None,
    trip_count: flags.TripCounts = None,
    setting: flags.Settings = None,
    indices: flags.Indices = "uniform",
    approximate: flags.Approximate = False,
    durations: flags.DurationsFlag = "auto",
    levers: flags.LeversFlag = None,
    json: flags.Json = False,
) -> None:
    """Predicts step time, memory, communication and energy of each TARGET."""
    from meshcast.base import BugError, MeshcastError
    from meshcast.cli.app import emit_json, report
    from meshcast.jobs import predict
    from meshcast.results import print_prediction

    options = flags.options(
        on=on, stack=stack, written=flags.written_flags(context),
        devices=devices, mesh=mesh, fidelity=fidelity, network=network, dims=dim, trips=trip_count,
        settings=setting, approximate=approximate, partitioner=partitioner, clocks=clocks, host=host, indices=indices,
        lowering=lowering, profile=profile, simulator=simulator, scheduler=scheduler,
        channels=channels, contention=contention, overlap=overlap, placement=placement, slow=slow, links=links,
        background=background, fabric=fabric, beside=beside, plan=plan,
        durations=durations, levers=flags.lever_count(levers),
    )  # fmt: skip
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
