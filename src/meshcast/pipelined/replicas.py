"""Slow devices in a pipeline: replicas that have one are pipelines of their own, and the reduction waits for the slowest.

A replica is the devices that one program runs on, in every stage: those with the same place on the mesh axes that the
programs leave out. Replicas without slow devices are alike. The others are simulated with the times of their programs on
devices of different speed (`simulate.class_run`), each kind once; all meet in the reduction of the gradients, so the step
is that of the slowest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshcast.hardware.conditions import Conditions
from meshcast.pipelined.definition import Pipeline
from meshcast.pipelined.parts import PartEstimate
from meshcast.pipelined.step import StepParts
from meshcast.results import RankShare
from meshcast.simulate.class_run import device_speeds
from meshcast.simulate.pipelines import PartCosts, PipelineRun, StepCosts, simulate_pipeline

# For each stage, the slow devices by their place in the stage.
Slow = tuple[tuple[tuple[int, float], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRun:
    """Replicas that are alike.

    Attributes:
        first: The lowest of them.
        count: How many there are.
        speed: Of the slowest device.
        run: Their step.
    """

    first: int
    count: int
    speed: float
    run: PipelineRun


def run_replicas(
    pipeline: Pipeline, step: StepParts, costs: StepCosts, conditions: Conditions
) -> tuple[ReplicaRun, ...]:
    """The step of every kind of replica, the slowest first.

    Raises:
        UsageError: A condition names a device that the pipeline does not have.
    """
    device_speeds(conditions, pipeline.devices)
    inner = replica_devices(step)
    replicas = pipeline.mesh.size // inner
    kinds: dict[Slow, list[int]] = {}
    touched = sorted({device % pipeline.mesh.size // inner for device, share in conditions.speed.items() if share != 1})
    for replica in touched:
        kinds.setdefault(_slow_devices(pipeline, conditions, inner, replica), []).append(replica)
    runs = []
    if len(touched) < replicas:
        first = next(replica for replica in range(replicas) if replica not in touched)
        run = simulate_pipeline(step.schedule, costs)
        runs.append(ReplicaRun(first=first, count=replicas - len(touched), speed=1.0, run=run))
    for slow, found in kinds.items():
        slowed = _slowed(step, costs, slow)
        speed = min((share for stage in slow for _, share in stage), default=1.0)
        run = simulate_pipeline(step.schedule, slowed)
        runs.append(ReplicaRun(first=found[0], count=len(found), speed=speed, run=run))
    return tuple(sorted(runs, key=lambda each: -each.run.duration))


def replica_devices(step: StepParts) -> int:
    """Devices of a stage that one replica's forward and backward passes run on."""
    return max(estimate.programs[name].run.devices for estimate in step.estimates for name in ("forward", "backward"))


def replica_shares(pipeline: Pipeline, step: StepParts, runs: tuple[ReplicaRun, ...]) -> tuple[RankShare, ...]:
    """A row for each kind of replica; nothing where all are alike."""
    if len(runs) == 1:
        return ()
    inner = replica_devices(step)
    longest = runs[0].run.duration
    return tuple(
        RankShare(
            first_device=each.first * inner,
            devices=each.count * inner * pipeline.stages,
            speed=each.speed,
            busy_s=max(stage.busy for stage in each.run.stages),
            waiting_s=longest - each.run.duration,
        )
        for each in runs
    )


def _slow_devices(pipeline: Pipeline, conditions: Conditions, inner: int, replica: int) -> Slow:
    """The slow devices of a replica, by stage and place among the replica's devices there."""
    found: list[list[tuple[int, float]]] = [[] for _ in range(pipeline.stages)]
    for device, share in sorted(conditions.speed.items()):
        stage, place = divmod(device, pipeline.mesh.size)
        if place // inner == replica and share != 1:
            found[stage].append((place % inner, share))
    return tuple(tuple(stage) for stage in found)


def _slowed(step: StepParts, costs: StepCosts, slow: Slow) -> StepCosts:
    """The costs of a replica with slow devices."""
    parts, updates = list(costs.parts), list(costs.update_s)
    known: dict[tuple[int, str, tuple[tuple[int, float], ...]], float] = {}

    def delay(estimate: PartEstimate, name: str, devices: tuple[tuple[int, float], ...]) -> float:
        key = (id(estimate), name, devices)
        if key not in known:
            program = estimate.programs.get(name)
            known[key] = 0.0
            if program is not None:
                run = program.run
                there = Conditions(speed={place % run.devices: share for place, share in devices})
                slowed = replace(run, options=replace(run.options, conditions=there))
                known[key] = slowed.timeline.duration - run.timeline.duration
        return known[key]

    for position, estimate in enumerate(step.estimates):
        stage = step.schedule.place(position)[0]
        devices = slow[stage]
        if devices:
            parts[position] = _later(
                parts[position], *(delay(estimate, n, devices) for n in ("forward", "backward", "weight"))
            )
            updates[stage] += delay(estimate, "update", devices)
    return replace(costs, parts=tuple(parts), update_s=tuple(updates))


def _later(part: PartCosts, forward: float, backward: float, weight: float) -> PartCosts:
    return replace(
        part,
        forward_s=part.forward_s + forward,
        backward_s=part.backward_s + backward,
        weight_s=part.weight_s + weight,
    )
