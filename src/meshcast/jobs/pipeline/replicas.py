"""Devices of a pipeline that are not like the others: a replica that has one is a pipeline of its own.

A replica is the devices that one program runs on, in every stage: those with the same place on the mesh axes that the
programs leave out. Replicas on healthy devices are alike. In the others the stage that holds a slow device, one of another
kind, or one whose links are not at their full rate has its programs predicted again on such devices, each kind once: the
slowest member bounds its group. An update that runs over several replicas is as slow as the slowest device among them in
all of these. All replicas meet in the reduction of the gradients, so the step is that of the slowest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from meshcast.jobs.pipeline.costs import step_costs
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.state import HardwareState, Local, copies, in_state
from meshcast.jobs.pipeline.step import StepParts
from meshcast.results import Prediction, RankShare
from meshcast.simulate import PipelineRun, simulate_pipeline

# How the step of a pipeline is put in time.
Simulate = Callable[[Pipeline, StepParts], PipelineRun]


def own_channels(pipeline: Pipeline, step: StepParts) -> PipelineRun:
    """The step in time where messages to each stage, gradients and a program's collectives do not wait for each other."""
    return simulate_pipeline(step.schedule, step_costs(pipeline, step))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRun:
    """Replicas that are alike.

    Attributes:
        first: The lowest of them.
        count: How many there are.
        speed: The speed of the slowest device, in the program that it slows most.
        step: Their parts, each as its stage's devices run it.
        run: Their step in time.
    """

    first: int
    count: int
    speed: float
    step: StepParts
    run: PipelineRun


def run_replicas(
    pipeline: Pipeline, step: StepParts, state: HardwareState, simulate: Simulate = own_channels
) -> tuple[ReplicaRun, ...]:
    """The step of every kind of replica, the slowest first."""
    inner, size, stages = replica_devices(step), pipeline.mesh.size, range(pipeline.stages)
    widest = max(program.run.devices for estimate in step.estimates for program in estimate.programs.values())
    span = max(inner, widest)  # replicas that one update reaches
    blocks = sorted({device % size // span for device in state.single})
    kinds: dict[tuple[tuple[Local, Local], ...], list[int]] = {}
    for block in blocks:
        around = [state.around(stage * size + block * span, span) for stage in stages]
        for replica in range(block * span // inner, (block + 1) * span // inner):
            own = [state.around(stage * size + replica * inner, inner) for stage in stages]
            kinds.setdefault(tuple(zip(own, around, strict=True)), []).append(replica)
    alike: dict[tuple[int, ...], ReplicaRun] = {}  # by the estimates of their parts: a state may change none of them
    stage_parts = _StageParts(inner, span, state)

    def add(parts: StepParts, first: int, count: int, speed: float) -> None:
        key = tuple(id(estimate) for estimate in parts.estimates)
        before = alike.get(key)
        if before is not None:
            alike[key] = replace(before, first=min(before.first, first), count=before.count + count)
            return
        run = simulate(pipeline, parts)
        alike[key] = ReplicaRun(first=first, count=count, speed=speed, step=parts, run=run)

    if healthy := (size // span - len(blocks)) * (span // inner):
        first = next(block for block in range(size // span) if block not in blocks) * span // inner
        add(step, first, healthy, 1.0)
    for seen, found in kinds.items():
        parts, speed = stage_parts.step(step, seen)
        add(parts, found[0], len(found), speed)
    return tuple(sorted(alike.values(), key=lambda each: -each.run.duration))


def replica_devices(step: StepParts) -> int:
    """Devices of a stage that one replica's passes run on."""
    return max(
        program.run.devices
        for estimate in step.estimates
        for name, program in estimate.programs.items()
        if name != "update"
    )


def replica_shares(pipeline: Pipeline, runs: tuple[ReplicaRun, ...]) -> tuple[RankShare, ...]:
    """A row for each kind of replica; nothing where all are alike."""
    if len(runs) == 1:
        return ()
    inner = replica_devices(runs[0].step)
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


class _StageParts:
    """Parts predicted again on the devices of one stage of one replica, each combination once."""

    def __init__(self, inner: int, span: int, state: HardwareState) -> None:
        self._inner = inner
        self._span = span
        self._everyone = state.everyone
        self._known: dict[tuple[int, Local, Local], tuple[PartEstimate, float]] = {}

    def step(self, step: StepParts, seen: tuple[tuple[Local, Local], ...]) -> tuple[StepParts, float]:
        """The step with what each stage sees of its own devices and of those around; the speed of the slowest."""
        found = [
            self._estimate(estimate, *seen[step.schedule.place(position)[0]])
            for position, estimate in enumerate(step.estimates)
        ]
        estimates = tuple(estimate for estimate, _ in found)
        return replace(step, estimates=estimates), min(speed for _, speed in found)

    def _estimate(self, estimate: PartEstimate, own: Local, around: Local) -> tuple[PartEstimate, float]:
        if not around:
            return estimate, 1.0
        key = (id(estimate), own, around)
        if key not in self._known:
            predictions, slowest = {}, 1.0
            for name in estimate.programs:
                predictions[name], speed = self._prediction(estimate, name, own, around)
                slowest = min(slowest, speed)
            same = all(predictions[name] is estimate.predictions[name] for name in predictions)
            self._known[key] = estimate if same else replace(estimate, predictions=predictions), slowest
        return self._known[key]

    def _prediction(self, estimate: PartEstimate, name: str, own: Local, around: Local) -> tuple[Prediction, float]:
        """The prediction of the slowest copy of a program, and the speed of the slowest device."""
        run = estimate.programs[name].run
        row, length = (own, self._inner) if run.devices <= self._inner else (around, self._span)
        concerned = copies(row, run.devices)
        found, slowest = [], 1.0
        if len(concerned) < length // run.devices:
            found.append(estimate.predictions[name])
        for local in dict.fromkeys(concerned):
            there = in_state(run, self._everyone, local)
            slowest = min([slowest, *there.setting.conditions.speed.values()])
            found.append(there.predict() if there is not run else estimate.predictions[name])
        return max(found, key=lambda prediction: prediction.step_time_s or 0.0), slowest
