"""A part of a pipeline on its hardware: what its programs take, keep and pass on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.base import KeptBeside, Mesh, UsageError
from meshcast.hardware import Conditions
from meshcast.jobs.pipeline.definition import Part, PartWiring, Pipeline
from meshcast.jobs.pipeline.offload import PIECES_HELD, streaming_seconds, with_room
from meshcast.jobs.pipeline.state import in_state
from meshcast.jobs.pipeline.wiring import PartProgram, Values, passed_on, total_bytes
from meshcast.jobs.program.run import Run
from meshcast.lower import LoweredProgram, with_deferred_sums
from meshcast.network import CollectivePlan
from meshcast.results import CollectiveShare, Prediction
from meshcast.simulate import PartCosts, PassWork, collective_of_kernel
from meshcast.workload import Collective

# A program on its hardware, and the paths of its results.
Prepare = Callable[[Any], tuple[Run, tuple[str, ...]]]
PROGRAMS = ("forward", "backward", "weight", "update")
TASKS = {"forward": PassWork.FORWARD, "backward": PassWork.BACKWARD, "weight": PassWork.WEIGHT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """Sums of gradients inside a stage that are made once a step, behind the last microbatch."""

    collective: Collective  # one of `share.count`
    devices: int  # of the program, whose groups it is over
    plan: CollectivePlan
    share: CollectiveShare


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEstimate:
    """A part's programs and the bytes that stay on a device between them; once it is known to fit or not, predictions.

    Attributes:
        part: The part.
        programs: Its programs.
        predictions: What each takes on its own; none before `predicted_part`.
        parameter_bytes: Weights.
        gradients: Kept for the whole step, by their paths.
        optimizer_bytes: State of the optimizer on the device.
        host_bytes: State of the optimizer in the host's memory.
        host_pieces: Pieces that it comes and goes in.
        saved: What a forward pass leaves for the backward pass.
        weight_saved: What a backward pass leaves for the weights' gradient.
        working_bytes: What each kind of task, and "update", needs beside all of these.
        accumulation_s: Seconds to add a microbatch's gradients to the sum, where the program does not do it:
            `accumulated_bytes` / memory bandwidth.
        deferred: Sums over devices of the stage that are left out of the pass and made once.
        streaming_s: Seconds that the update takes longer because its state is in the host's memory; 0 without times.
        paired_s: Seconds by which exchanges of experts are hidden that its passes, one after the other, would wait for
            (`jobs.pipeline.paired`).
    """

    part: Part
    programs: dict[str, PartProgram]
    parameter_bytes: int
    gradients: Values
    optimizer_bytes: int
    saved: Values
    weight_saved: Values
    working_bytes: dict[str, int]
    accumulation_s: float = 0.0
    host_bytes: int = 0
    host_pieces: int = 0
    streaming_s: float = 0.0
    paired_s: float = 0.0
    predictions: dict[str, Prediction] = field(default_factory=dict)
    deferred: tuple[Deferred, ...] = ()

    @property
    def gradient_bytes(self) -> int:
        """The bytes of the part's gradients."""
        return total_bytes(self.gradients)

    @property
    def accumulated_bytes(self) -> int:
        """What adding a microbatch's gradients to the sum moves: both are read, and the sum is written."""
        return accumulated_bytes(self.gradient_bytes)

    @property
    def fixed_bytes(self) -> int:
        """The bytes that a device holds for the whole step: parameters, gradients, optimizer state."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def held(self) -> PartCosts:
        """The part's bytes for a simulation of memory; its times are left out, as memory does not depend on them."""
        working = {work: self.working_bytes[name] for name, work in TASKS.items() if name in self.working_bytes}
        return PartCosts(
            forward_s=0.0, backward_s=0.0, saved_bytes=total_bytes(self.saved),
            weight_saved_bytes=total_bytes(self.weight_saved), working_bytes=working, fixed_bytes=self.fixed_bytes,
        )  # fmt: skip

    @property
    def too_large(self) -> list[Run]:
        """Programs that do not fit on their own."""
        return [program.run for program in self.programs.values() if program.run.verdict is not None]


def accumulated_bytes(gradient_bytes: int) -> int:
    """What adding gradients to a sum of as many bytes moves: both are read, and the sum is written."""
    return 3 * gradient_bytes


def wired_part(part: Part, pipeline: Pipeline, prepare: Prepare, everyone: Conditions) -> PartEstimate:
    """A part's programs wired to each other, with what they hold; none of them is timed.

    Args:
        part: The part.
        pipeline: What it is a part of.
        prepare: A program on healthy hardware.
        everyone: What holds for the links of all devices.

    Raises:
        UsageError: The programs do not fit together, or not on the mesh.
    """
    programs: dict[str, PartProgram] = {}
    for name in PROGRAMS:
        target = getattr(part, name)
        if target is not None:
            run, results = prepare(target)
            label = f"{part.name}, {name}"
            programs[name] = PartProgram(label=label, where=part.where, run=in_state(run, everyone), results=results)
            _check_mesh(programs[name], pipeline.mesh)
    wiring = pipeline.wiring
    forward, backward, weight = programs["forward"], programs["backward"], programs.get("weight")
    saved = passed_on(forward, wiring.saved_output, backward, wiring.saved, "what is saved", needed=False)
    weight_saved: Values = {}
    if weight is not None:
        passed_on(forward, wiring.saved_output, weight, wiring.saved, "what is saved", needed=False)
        weight_saved = passed_on(
            backward, wiring.weight_saved_output, weight, wiring.weight_saved, "what is saved", needed=False
        )
    last, where = (backward, wiring.gradients_output) if weight is None else (weight, wiring.weight_gradients_output)
    gradients = last.outputs(where)
    if not gradients:
        raise UsageError(
            f"{last.label} has no result {where!r}: where are its gradients? its results are {last.result_names()}",
            where=part.where,
            fix="return them there, or say under [wiring] where they are",
        )
    deferred: tuple[Deferred, ...] = ()
    if pipeline.microbatches > 1:
        name = "backward" if weight is None else "weight"
        programs[name], deferred = _summed_once(last, where)
        last = programs[name]
    gradient_bytes = total_bytes(gradients)
    accumulates = bool(last.arguments(wiring.gradients)) or pipeline.microbatches == 1
    update = programs.get("update")
    state_bytes, pieces = total_bytes(update.arguments(wiring.optimizer_state)) if update else 0, 0
    if update is not None and pipeline.host_state_pieces:
        pieces = pipeline.host_state_pieces
        programs["update"] = update = replace(update, run=with_room(update.run, state_bytes))
    kept = {name: _kept_bytes(name, program, wiring, split=weight is not None) for name, program in programs.items()}
    return PartEstimate(
        part=part,
        programs=programs,
        parameter_bytes=max(total_bytes(program.arguments(wiring.parameters)) for program in programs.values()),
        gradients=gradients,
        optimizer_bytes=min(state_bytes, PIECES_HELD * -(-state_bytes // pieces)) if pieces else state_bytes,
        host_bytes=state_bytes if pieces else 0,
        host_pieces=pieces,
        saved=saved,
        weight_saved=weight_saved,
        working_bytes={name: max(0, p.run.memory.peak - kept[name]) for name, p in programs.items()},
        deferred=deferred,
        accumulation_s=0.0 if accumulates else accumulated_bytes(gradient_bytes) / last.run.device.memory_bandwidth,
    )


def predicted_part(estimate: PartEstimate, *, timed: bool) -> PartEstimate:
    """A part with predictions of its programs, each alone.

    Args:
        estimate: The part.
        timed: Whether they are timed; a step that does not fit needs no times.
    """
    runs = {name: program.run for name, program in estimate.programs.items()}
    predictions = {name: run.predict() if timed else run.untimed() for name, run in runs.items()}
    streaming = 0.0
    if timed and estimate.host_pieces:
        updating = predictions["update"].step_time_s or 0.0
        device = runs["update"].device
        streaming = streaming_seconds(estimate.host_bytes, estimate.host_pieces, updating, device)
    return replace(estimate, predictions=predictions, streaming_s=streaming)


_SUMMING: KeptBeside[LoweredProgram] = KeptBeside()  # without sums of gradients, as one object for all hardware


def _summed_once(program: PartProgram, gradients: str) -> tuple[PartProgram, tuple[Deferred, ...]]:
    """A program whose gradients stay each device's own, and the sums that are made of them once a step."""
    run = program.run
    lowered = run.lowered
    outputs = lowered.schedule.outputs
    if len(outputs) != len(program.results):  # a compiler has changed the results
        return program, ()
    own = frozenset(v for name, v in zip(program.results, outputs, strict=True) if name.startswith(gradients))
    schedule, found = with_deferred_sums(lowered.schedule, own)
    if not found:
        return program, ()
    deferred = []
    for kernel, count in found:
        collective, plan = collective_of_kernel(kernel), run.collective(kernel)
        share = CollectiveShare(
            kind=collective.kind,
            group=str(collective.group),
            group_size=collective.group.size,
            count=count,
            bytes_sent=count * collective.sent_bytes,
            seconds=count * run.network.seconds(kernel),
            algorithm=plan.algorithm,
            level=plan.level,
        )
        deferred.append(Deferred(collective=collective, devices=run.workload.devices, plan=plan, share=share))
    summing = _SUMMING.of(lowered, own, lambda: replace(lowered, schedule=schedule))
    return replace(program, run=replace(run, lowered=summing)), tuple(deferred)


def _kept_bytes(name: str, program: PartProgram, wiring: PartWiring, *, split: bool) -> int:
    """What of a program's memory is accounted for elsewhere: weights, gradients, optimizer state, what is saved."""
    prefixes = (wiring.parameters, wiring.gradients, wiring.optimizer_state, wiring.saved, wiring.weight_saved)
    kept = sum(total_bytes(program.arguments(prefix)) for prefix in prefixes)
    if name == "forward":
        kept += total_bytes(program.outputs(wiring.saved_output))
    if name == "backward" and split:
        kept += total_bytes(program.outputs(wiring.weight_saved_output))
    return kept


def _check_mesh(program: PartProgram, mesh: Mesh) -> None:
    """A program is written for the whole mesh of a stage or for its inner axes."""
    axes = tuple(axis for axis in program.run.workload.mesh.axes if axis[1] > 1)
    stage = tuple(axis for axis in mesh.axes if axis[1] > 1)
    if axes and axes != stage[len(stage) - len(axes) :]:
        raise UsageError(
            f"{program.label} is written for the mesh {program.run.workload.mesh}, and the stages' mesh is {mesh}",
            where=program.where,
            fix="the program's axes must be the last ones of the stages' mesh, with the same names and sizes",
        )
