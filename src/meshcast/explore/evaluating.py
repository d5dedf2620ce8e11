"""Points become outcomes: each is predicted as `meshcast predict` does it: the step, without its interval, levers and tables."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Hashable, Mapping
from dataclasses import asdict, replace
from typing import Any

from meshcast.base import MeshcastError, collected_later, names_taken, room_for_nesting
from meshcast.explore.point import Outcome, Point, Status
from meshcast.explore.shape import builder_of, file_stamp
from meshcast.hardware import Cluster, resolve
from meshcast.jobs import (
    Job,
    JobSource,
    LayersCost,
    PipelineJob,
    ProgramJob,
    answered,
    chosen_options,
    job_source,
    layer_turn,
    least_of_step,
    part_cost,
    resolve_job,
)
from meshcast.options import Options
from meshcast.results import Prediction

STATUSES: dict[str, Status] = {"infeasible": "infeasible", "unsupported": "unsupported"}


def evaluate(point: Point) -> Outcome:
    """What comes of a point; whatever goes wrong is an outcome too."""
    started = time.perf_counter()
    try:
        outcome = outcome_of(predicted(point))
    except MeshcastError as error:
        status = STATUSES.get(error.code, "failed")
        outcome = Outcome(status=status, error=error.message, code=error.code)
    except Exception as error:  # a bug of ours in one point must not lose the others
        text = traceback.format_exception_only(error)[-1].strip()
        outcome = Outcome(status="failed", error=text, code="bug")
    return replace(outcome, seconds=time.perf_counter() - started)


def predicted(point: Point) -> Prediction:
    """The prediction of a point.

    Raises:
        MeshcastError: There is none.
    """
    with collected_later(), names_taken(), room_for_nesting():
        return answered(resolved(point)).prediction


def resolved(point: Point, cluster: Cluster | None = None) -> Job:
    """The job of a point, of which the step is all that is asked for.

    Args:
        point: The point.
        cluster: Its hardware, or what stands for that of several points; by default what its options name.

    Raises:
        MeshcastError: There is none.
    """
    options = options_of(point.asked)
    job = resolve_job(_source(point.target), options, cluster=cluster or cluster_of(options))
    return replace(job, interval=False, brief=True) if isinstance(job, (ProgramJob, PipelineJob)) else job


def outcome_of(prediction: Prediction) -> Outcome:
    """A prediction as one row."""
    done, timed = prediction.throughput, prediction.timed
    energy = timed.energy_j if timed is not None else None
    common: dict[str, Any] = {
        "devices": prediction.devices,
        "device": prediction.device,
        "memory_bytes": prediction.memory.peak,
        "capacity_bytes": prediction.capacity_bytes,
        "fidelity": prediction.fidelity,
    }
    if timed is None:
        found = prediction.infeasible
        demand = max(found.demand, prediction.memory.peak) if found is not None else prediction.memory.peak
        return Outcome(
            status="infeasible", **{**common, "memory_bytes": demand}, error="does not fit", code="infeasible"
        )
    return Outcome(
        status="answered",
        step_time_s=timed.step_time_s,
        units_per_s=done.per_s if done is not None else None,
        unit=done.unit if done is not None else None,
        mfu=timed.mfu,
        energy_j=energy * prediction.devices if energy is not None else None,
        breakdown_s=asdict(timed.breakdown),
        **common,
    )


def layers_costs(
    target: str, asked: Mapping[str, Any], *, first: int, layers: int, period: int, last: bool = False
) -> LayersCost:
    """What layers of a model take under a plan: `layers` of them as a part, of the `last` ones with what ends the model; where
    that is 0, one in its loop, of the `last` ones with what it takes at least in any step.

    Raises:
        MeshcastError: They cannot be had.
    """
    options = options_of(asked)
    builder, cluster = builder_of(target), cluster_of(options)
    if layers:
        return part_cost(builder, options, cluster, first=first, layers=layers, last=last)
    turn = least_of_step if last else layer_turn
    return turn(builder, options, cluster, first=first, period=period)


def options_of(asked: Mapping[str, Any]) -> Options:
    """The options of a point, one of many, with what its stack brings.

    Raises:
        MeshcastError: There are none such.
    """
    on, key = asked.get("on"), options_key(asked)
    if key is None:
        return _options(asked)
    found = _OPTIONS.get(key)
    if found is None:
        if len(_OPTIONS) >= MOST_OPTIONS:
            _OPTIONS.clear()
        found = _OPTIONS[key] = _options(asked)
    return found if found.on == on else found.having(on=on)


def options_key(asked: Mapping[str, Any]) -> Hashable | None:
    """What points have in common that differ in their hardware alone; None where that has no name."""
    key = tuple((name, _hashed(value)) for name, value in asked.items() if name != "on")
    return key if isinstance(asked.get("on"), str) and None not in [value for _, value in key] else None


_OPTIONS: dict[Hashable, Options] = {}  # of points that differ in their hardware alone, or come again
MOST_OPTIONS = 512


def _options(asked: Mapping[str, Any]) -> Options:
    return chosen_options(None, {**asked, "levers": False}, where="explore").of_many


def _hashed(value: Any) -> Hashable | None:
    """A value of a point in a form that only equal ones of its type have; None where it is no text, number or table of these."""
    if isinstance(value, Mapping):
        parts = [(name, _hashed(inner)) for name, inner in value.items()]
        return None if None in [part for _, part in parts] else tuple(parts)
    return (type(value), value) if isinstance(value, str | int | float | bool | None) else None


def cluster_of(options: Options) -> Cluster:
    """The hardware that options name, looked up once for each name."""
    on = options.on
    return cluster_named(on) if isinstance(on, str) else on


@functools.lru_cache(maxsize=512)
def cluster_named(on: str) -> Cluster:
    """The hardware of a name, looked up once."""
    return resolve(on)


def _source(target: str) -> JobSource:
    return _kept_source(target, file_stamp(target))


@functools.lru_cache(maxsize=64)
def _kept_source(target: str, _stamp: Hashable) -> JobSource:
    return job_source(target)
