"""A part of a pipeline on its hardware: what its programs take, keep and pass on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.base import KeptBeside, Mesh, UsageError
from meshcast.hardware import Conditions
from meshcast.jobs.pipeline.definition import Part, Pipeline
from meshcast.jobs.pipeline.offload import PIECES_HELD, streaming_seconds, with_room
from meshcast.jobs.pipeline.part_values import PartValues, gradient_program, part_values
from meshcast.jobs.pipeline.state import in_state
from meshcast.jobs.pipeline.wiring import PartProgram, Values, total_bytes
from meshcast.jobs.program.known_steps import number_of_options
from meshcast.jobs.program.on_network import levels_spanned
from meshcast.jobs.program.run import Run
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
    values = part_values(programs, pipeline)
    name = gradient_program(programs)
    programs[name], deferred = _summed_once(programs[name], values)
    device = programs[name].run.device
    state_bytes, pieces, update = values.state_bytes, 0, programs.get("update")
    if update is not None and pipeline.host_state_pieces:
        pieces = pipeline.host_state_pieces
        programs["update"] = replace(update, run=with_room(update.run, state_bytes))
    added = 0 if values.accumulates else accumulated_bytes(total_bytes(values.gradients))
    return PartEstimate(
        part=part,
        programs=programs,
        parameter_bytes=values.parameter_bytes,
        gradients=values.gradients,
        optimizer_bytes=min(state_bytes, PIECES_HELD * -(-state_bytes // pieces)) if pieces else state_bytes,
        host_bytes=state_bytes if pieces else 0,
        host_pieces=pieces,
        saved=values.saved,
        weight_saved=values.weight_saved,
        working_bytes={name: max(0, p.run.memory.peak - values.kept_bytes[name]) for name, p in programs.items()},
        deferred=deferred,
        accumulation_s=added / device.memory_bandwidth,
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


def _summed_once(program: PartProgram, values: PartValues) -> tuple[PartProgram, tuple[Deferred, ...]]:
    """The program that makes gradients as it runs for each microbatch, and the sums that are made of them once a step."""
    if not values.sums:
        return program, ()
    run = program.run
    key = sums_key(run) if run.brief else None
    deferred = _deferred(run, values) if key is None else _DEFERRED.of(values, key, lambda: _deferred(run, values))
    return replace(program, run=replace(run, lowered=values.summing)), deferred


_DEFERRED: KeptBeside[tuple[Deferred, ...]] = KeptBeside()


def sums_key(run: Run) -> Hashable | None:
    """What the times of a stage's sums follow from, beside the sums: numbers of the network and all of its options.

    None where they read more of the network than the levels that they span.
    """
    spanned = levels_spanned(run)
    return None if spanned is None else (spanned, number_of_options((run.options.network,)))


def _deferred(run: Run, values: PartValues) -> tuple[Deferred, ...]:
    deferred = []
    for kernel, count in values.sums:
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
    return tuple(deferred)


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
