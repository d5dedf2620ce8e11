"""Rows of runs as targets, and their predictions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from meshcast.base import UsageError
from meshcast.evidence.validate.runs.next_stack import next_stack
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.jobs import RunTarget, fitting, overlap_of, predict, run_target, stated_options, unknown_target
from meshcast.options import Options
from meshcast.results import Prediction

_ROOM = 2.0**60  # bytes: enough for any program


def row_target(row: RunRow, *, switched: bool = False) -> RunTarget:
    """What a row describes; what cannot be read of it, or is not understood, is among `missing`.

    Args:
        row: The row.
        switched: Take the stack most like the row's own in its place (`next_stack`).
    """
    if row.unread:
        return unknown_target(row.run.devices, row.unread)
    try:
        target = run_target(row.run)
    except UsageError as error:  # settings that the model refuses: sizes that do not fit each other
        return unknown_target(row.run.devices, (f"sizes that fit each other: {error.message}",))
    if switched and target.stack is not None and target.on is not None:
        other = next_stack(target.stack.name, target.on.device, partial(overlap_of, row.run))
        target = run_target(replace(row.run, stack=other))
    return replace(target, assumptions=tuple(dict.fromkeys([*filter(None, [row.assumed]), *target.assumptions])))


def predict_run(target: RunTarget, options: Options, *, over_memory: bool = False) -> Prediction:
    """The prediction of a run that lacks nothing.

    Args:
        target: The run.
        options: Fidelity, network and the like; hardware, model and stack are the run's.
        over_memory: Time it also where more memory is predicted than there is.

    Raises:
        MeshcastError: The plan cannot be carried out.
    """
    model, cluster = target.model, target.on
    assert model is not None
    assert cluster is not None
    if over_memory and options.asked_lowering == "compiled":
        # A compiler joins collectives and orders kernels by the memory there is: it is told of more only where that is short.
        found = predict_run(target, options)
        if found.feasible:
            return found
    if over_memory:
        target = replace(target, on=replace(cluster, device=replace(cluster.device, memory_bytes=_ROOM)))
    return predict(model.name, stated_options(target, options).having(levers=False))


def predict_fitting(target: RunTarget, options: Options, *, over_memory: bool = False) -> tuple[RunTarget, Prediction]:
    """The prediction of a run that lacks nothing, and the run with what it was taken to recompute.

    Raises:
        MeshcastError: The plan cannot be carried out.
    """
    return fitting(
        target,
        lambda run: predict_run(run, options, over_memory=over_memory),
        lambda prediction: prediction.memory.peak,
    )
