"""From parts to a step: messages over the links between stages, reductions over replicas."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from meshcast.base import Group, UsageError
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.state import HardwareState
from meshcast.jobs.pipeline.wiring import passed_on, total_bytes
from meshcast.network import CollectivePlan, NetworkModel, Setting, groups_apart, network_model
from meshcast.simulate import PipelineSchedule, make_schedule
from meshcast.workload import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What each device of a stage sends to its counterpart in another."""

    collective: Collective
    plan: CollectivePlan
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """A pipeline's positions with everything that passes between and after them.

    Attributes:
        schedule: The order.
        estimates: By position; equal parts are the same object.
        forward: The message that each position sends on; None for the last, and inside a stage.
        backward: The message that each position sends back; None for the first, and inside a stage.
        reductions: The reductions of each position's gradients, by position.
        gathers: The gathers of each position's parameters after a sharded update.
        ties: The sum of gradients that the first and the last position share, of each of them.
        network: What all of these are timed by.
    """

    schedule: PipelineSchedule
    estimates: tuple[PartEstimate, ...]
    forward: tuple[Message | None, ...]
    backward: tuple[Message | None, ...]
    reductions: tuple[Message | None, ...]
    gathers: tuple[Message | None, ...]
    ties: tuple[Message | None, ...]
    network: NetworkModel = field(repr=False)

    @property
    def parts(self) -> list[PartEstimate]:
        """The parts, equal ones once."""
        return list({id(estimate): estimate for estimate in self.estimates}.values())

    def with_parts(self, change: Callable[[PartEstimate], PartEstimate]) -> StepParts:
        """A copy of the step with every part changed, equal ones once."""
        changed = {id(estimate): change(estimate) for estimate in self.parts}
        return replace(self, estimates=tuple(changed[id(estimate)] for estimate in self.estimates))


def assemble(pipeline: Pipeline, estimates: Sequence[PartEstimate], setting: Setting, network: str) -> StepParts:
    """The positions of a pipeline, wired from one to the next.

    Args:
        pipeline: The pipeline.
        estimates: Estimates of its parts, equal ones once.
        setting: The hardware of all its devices, and its state.
        network: Name of the model that messages between stages and reductions over replicas are timed by.

    Raises:
        UsageError: A part does not take what the one before sends, or a split schedule lacks programs.
    """
    schedule = make_schedule(
        pipeline.schedule,
        stages=pipeline.stages,
        microbatches=pipeline.microbatches,
        chunks=pipeline.virtual_stages,
    )
    if pipeline.barrier is not None:
        schedule = replace(schedule, barrier=pipeline.barrier)
    by_position = tuple(estimate for estimate in estimates for _ in range(estimate.part.count))
    if schedule.split:
        for estimate in estimates:
            if "weight" not in estimate.programs:
                raise UsageError(
                    f"schedule {schedule.name} splits the backward pass, and part {estimate.part.name!r} has no weight "
                    "program",
                    where=estimate.part.where,
                    fix="give weight, or use a schedule that does not split: gpipe, 1f1b, interleaved",
                )
    wired = _Wires(pipeline, schedule, setting, network)
    pairs = list(itertools.pairwise(by_position))
    reduced = [wired.reduction(estimate, schedule.place(at)[0]) for at, estimate in enumerate(by_position)]
    return StepParts(
        schedule=schedule,
        estimates=by_position,
        forward=(*(wired.forward(index, a, b) for index, (a, b) in enumerate(pairs)), None),
        backward=(None, *(wired.backward(index, a, b) for index, (a, b) in enumerate(pairs))),
        reductions=tuple(message for message, _ in reduced),
        gathers=tuple(message for _, message in reduced),
        ties=wired.ties(by_position),
        network=wired.network,
    )


class _Wires:
    def __init__(self, pipeline: Pipeline, schedule: PipelineSchedule, setting: Setting, network: str) -> None:
        state = HardwareState.of(setting.conditions)
        self._pipeline = pipeline
        self._schedule = schedule
        # Places that are shifted by a multiple of this lie alike in the domains of every level.
        self._alike = math.lcm(*(level.size for level in setting.cluster.levels[:-1]))
        self._concerned = state.linked()
        self.network = network_model(network, setting)
        self._healthy = network_model(network, replace(setting, conditions=state.everyone))
        self._pairs: dict[tuple[int, int, int], Message] = {}
        self._reductions: dict[tuple[int, int, Group], tuple[Message | None, Message | None]] = {}
        self._bytes: dict[tuple[int, int, bool], int] = {}

    def forward(self, position: int, giver: PartEstimate, taker: PartEstimate) -> Message | None:
        wiring = self._pipeline.wiring

        def sent() -> int:
            return total_bytes(
                passed_on(
                    giver.programs["forward"], wiring.output, taker.programs["forward"], wiring.input, "the output"
                )
            )

        key = (id(giver), id(taker), True)
        if key not in self._bytes:
            self._bytes[key] = sent()
        return self._message(position, position + 1, self._bytes[key])

    def backward(self, position: int, taker: PartEstimate, giver: PartEstimate) -> Message | None:
        """From `position + 1` back to `position`."""
        wiring = self._pipeline.wiring

        def sent() -> int:
            gradient = passed_on(
                giver.programs["backward"], wiring.input_gradient, taker.programs["backward"], wiring.output_gradient,
                "the input's gradient",
            )  # fmt: skip
            return total_bytes(gradient)

        key = (id(giver), id(taker), False)
        if key not in self._bytes:
            self._bytes[key] = sent()
        return self._message(position + 1, position, self._bytes[key])

    def _message(self, source: int, target: int, size: int) -> Message | None:
        first, second = self._schedule.place(source)[0], self._schedule.place(target)[0]
        if first == second or not size:
            return None
        key = (size, min(first, second), abs(first - second))
        if key not in self._pairs:
            self._pairs[key] = self._slowest_pair(*key)
        return self._pairs[key]

    def _slowest_pair(
        self, size: int, stage: int, distance: int, kind: str = "collective_permute", reason: str = "pipeline"
    ) -> Message:
        """A message between equal places of two stages, all devices at once: the slowest pair counts.

        Pairs that are shifted by a multiple of every domain's size lie alike, so one of each kind is looked at, and
        those with links in a state of their own.
        """
        devices = self._pipeline.mesh.size
        places = set(range(min(devices, self._alike)))
        places |= {at % devices for at in self._concerned if at // devices in (stage, stage + distance)}
        pairs = _pairs(devices, stage, distance, tuple(sorted(places)))
        messages = (
            self._timed(
                Collective(kind=kind, group=pair, input_bytes=size, output_bytes=size, reason=reason),
                self.network,
            )
            for pair in groups_apart(self.network, pairs)
        )
        return max(messages, key=lambda message: message.seconds)

    def reduction(self, estimate: PartEstimate, stage: int) -> tuple[Message | None, Message | None]:
        """The reduction of a part's gradients, and the gathering of its parameters after a sharded update."""
        reduction = self._pipeline.reduction
        if reduction is None:
            return None, None
        group, network = self._replicas(reduction.over, stage)
        key = (id(estimate), id(network), group)
        if key not in self._reductions:
            size = estimate.gradient_bytes
            scattered = reduction.kind == "reduce_scatter"
            reduce = Collective(
                kind=reduction.kind,
                group=group,
                input_bytes=size,
                output_bytes=size // group.size if scattered else size,
                reason="gradients",
            )
            gather = None
            if scattered:
                whole = estimate.parameter_bytes
                gather = self._timed(
                    Collective(
                        kind="all_gather",
                        group=group,
                        input_bytes=whole // group.size,
                        output_bytes=whole,
                        reason="parameters",
                    ),
                    network,
                )
            self._reductions[key] = self._timed(reduce, network), gather
        return self._reductions[key]

    def ties(self, parts: Sequence[PartEstimate]) -> tuple[Message | None, ...]:
        """The sum of what the first and the last part share, each device with its counterpart, as Megatron-LM does it."""
        nothing: tuple[Message | None, ...] = (None,) * len(parts)
        last = self._schedule.place(len(parts) - 1)[0]
        if self._pipeline.tied is None or not last:
            return nothing
        given = [part.gradients for part in (parts[0], parts[-1])]
        ends = [
            {path.removeprefix(prefix): tensor for path, tensor in gradients.items() if path.startswith(prefix)}
            for gradients, prefix in zip(given, self._pipeline.tied, strict=True)
        ]
        size = total_bytes({path: tensor for path, tensor in ends[0].items() if path in ends[1]})
        if not size:
            return nothing
        message = self._slowest_pair(size, 0, last, kind="all_reduce", reason="tied gradients")
        return (message, *nothing[1:-1], message)

    def _replicas(self, over: tuple[str, ...], stage: int) -> tuple[Group, NetworkModel]:
        """The groups over replicas in a stage, and what times them.

        Stages that lie alike in the domains of every level are timed as the first of them; one with links in a state of
        its own is timed where it is.
        """
        devices = self._pipeline.mesh.size
        group = self._pipeline.mesh.group(over)
        own = any(at // devices == stage for at in self._concerned)
        first = stage * devices if own else stage * devices % self._alike
        if first:
            rows = tuple(tuple(int(device) for device in first + row) for row in group.rows())
            group = replace(group, first=first, devices=0, table=rows)
        return group, self.network if own else self._healthy

    def _timed(self, collective: Collective, network: NetworkModel) -> Message:
        return Message(collective=collective, plan=network.plan(collective), seconds=network.seconds(collective))


@functools.lru_cache(maxsize=4096)
def _pairs(devices: int, stage: int, distance: int, places: tuple[int, ...]) -> tuple[Group, ...]:
    """Equal places of two stages of so many devices, `distance` stages apart; as one object for all hardware."""
    span = distance * devices
    return tuple(Group(dims=((2, span),), axes=("pipeline",), first=stage * devices + place) for place in places)


def program_counts(step: StepParts) -> Iterator[tuple[PartEstimate, str, int]]:
    """(estimate, program, how often a step runs it), of every position."""
    for estimate in step.estimates:
        for name in estimate.programs:
            yield estimate, name, 1 if name == "update" else step.schedule.microbatches


def message_counts(step: StepParts) -> Iterator[tuple[Message, int]]:
    """Every message and reduction with how often it is sent in a step."""
    for messages, count in (
        (step.forward, step.schedule.microbatches),
        (step.backward, step.schedule.microbatches),
        (step.reductions, 1),
        (step.gathers, 1),
        (step.ties, 1),
    ):
        yield from ((message, count) for message in messages if message is not None)
