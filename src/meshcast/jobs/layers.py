"""What a model's layers take under a plan, before there is a step: some layers in a row, predicted as parts of pipelines are.

A part of a pipeline runs its layers in a loop, and a loop takes as long as its turns (`docs/loops.md`): one turn's seconds
and what it saves for the backward pass say what all parts of such layers take at least (`layer_turn`). Parts in the middle of a
pipeline are the same whatever is around them: what one takes (`part_cost`) holds for all numbers of stages and replicas. So does
what the last one takes, which has what ends the model beside its layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshcast.base import collected_later, names_taken, room_for_nesting
from meshcast.hardware import Cluster
from meshcast.jobs.described import asked_of
from meshcast.jobs.least_times import least_ends, least_turn, limit_of, stream_of
from meshcast.jobs.least_work import LeastWork, PowerLimit
from meshcast.jobs.pipeline.job import PipelineJob
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.wiring import total_bytes
from meshcast.jobs.planned.stages import layers_pipeline
from meshcast.jobs.program.run import Run
from meshcast.jobs.resolve import resolve_job
from meshcast.options import Options
from meshcast.programs import setting_value
from meshcast.simulate import Repeat
from meshcast.zoo import Builder

TURNS = 2  # of the loop: one would be no loop


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersCost:
    """What some layers in a row take of each device that they are shared out over, for one microbatch.

    Attributes:
        forward_s: Seconds of the forward pass.
        backward_s: Seconds of the backward pass, what is computed again included; where that is split, of the input's gradient.
        weight_s: Seconds of the weights' gradient where it is a pass of its own.
        saved_bytes: What the forward pass leaves for the backward pass.
        fixed_bytes: Weights and gradients.
        flops: Of both passes' matrix products.
        least_forward: What a layer's forward pass takes in any program that has it, whatever else that does
            (`jobs/least_times.py`); None where that was not asked.
        least_backward: What its backward pass takes likewise.
        aside: What both do beside that, where no other device has a share of the weights.
        products: Matrix FLOPs of each product of two matrices of the forward pass.
        shortest_s: Seconds of the shortest of them.
        others_s: Seconds of what is no product in `least_forward` and in `least_backward`, at the most.
        slowed: The share of its work that a product loses beside a collective, and beside one that switches carry out.
        ends: What ends the model takes likewise.
        stream: What a byte takes at least that is moved to or from memory.
        limit: What a device may draw; None where nobody knows.
    """

    forward_s: float
    backward_s: float
    weight_s: float
    saved_bytes: float
    fixed_bytes: float
    flops: float
    least_forward: LeastWork | None = None
    least_backward: LeastWork | None = None
    aside: LeastWork | None = None
    products: tuple[float, ...] = ()
    shortest_s: float = 0.0
    others_s: tuple[float, float] = (0.0, 0.0)
    slowed: tuple[float, float] = (0.0, 0.0)
    ends: LeastWork | None = None
    stream: LeastWork | None = None
    limit: PowerLimit | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LayersCost:
        """The cost of an object, as `asdict` makes it."""
        told = ("products", "others_s", "slowed")
        names = ("least_forward", "least_backward", "aside", "ends", "stream")
        works = {name: LeastWork.from_json(data[name]) for name in names if data.get(name) is not None}
        limit = {"limit": PowerLimit(**data["limit"])} if data.get("limit") is not None else {}
        return cls(**{**data, **works, **limit, **{name: tuple(data[name]) for name in told if name in data}})


def part_cost(
    builder: Builder, options: Options, cluster: Cluster, *, first: int, layers: int, last: bool = False
) -> LayersCost:
    """What so many layers take as a part that does not begin the model.

    Args:
        builder: The model.
        options: The plan and everything else, with what a stack brings.
        cluster: The hardware.
        first: The first of the layers.
        layers: How many.
        last: Whether the part ends the model.

    Raises:
        InfeasibleError: The plan does not divide the layers.
        UnsupportedError: The model has no parts, or the plan asks for what the model or the device does not have.
    """
    part = _part(builder, options, cluster, first=first, layers=layers, last=last)
    seconds = {name: found.step_time_s or 0.0 for name, found in part.predictions.items()}
    return _cost(part, seconds, share=1.0)


def layer_turn(builder: Builder, options: Options, cluster: Cluster, *, first: int, period: int) -> LayersCost:
    """What a layer takes in the loop of any part of several, on average over a period of the model's pattern.

    Arguments and errors are those of `part_cost`; `period` is after how many layers the pattern begins again.
    """
    part = _part(builder, options, cluster, first=first, layers=TURNS * period)
    return _turn_cost(part, period)


def least_of_step(builder: Builder, options: Options, cluster: Cluster, *, first: int, period: int) -> LayersCost:
    """`layer_turn` of the last layers, with what these, a period of them, and what ends the model take at least in any step.

    Arguments and errors are those of `layer_turn`; `first` is the first of the last layers.
    """
    part = _part(builder, options, cluster, first=first, layers=TURNS * period, last=True)
    runs = [each.run for each in part.programs.values()]
    forward, backward = (least_turn(part.programs[name].run, TURNS) for name in ("forward", "backward"))
    return replace(
        _turn_cost(part, period),
        least_forward=forward.work.then(forward.saved),
        least_backward=backward.work,
        aside=forward.cut.then(backward.cut).then(backward.saved),
        products=forward.products,
        shortest_s=forward.shortest_s,
        others_s=(forward.others_s, backward.others_s),
        slowed=(min(forward.slowed[0], backward.slowed[0]), min(forward.slowed[1], backward.slowed[1])),
        ends=least_ends(runs, TURNS),
        stream=stream_of(runs[0]),
        limit=limit_of(runs[0]),
    )


def _turn_cost(part: PartEstimate, period: int) -> LayersCost:
    seconds = {name: _turn(part, name) / period for name in part.predictions}
    return _cost(part, seconds, share=1 / (TURNS * period))


def _part(
    builder: Builder, options: Options, cluster: Cluster, *, first: int, layers: int, last: bool = False
) -> PartEstimate:
    with collected_later(), names_taken(), room_for_nesting():
        asked = asked_of(builder, options, cluster.device)
        assert asked.plan is not None
        settings = {name: setting_value(text) for name, text in asked.settings.items()}
        plan = replace(asked.plan, stack=None)
        platform = cluster.device.platform
        pipeline = layers_pipeline(builder, plan, settings, platform, first=first, layers=layers, last=last)
        below = options.having(plan=None, settings={}, attention="plain", devices=None)
        job = resolve_job(pipeline, below, cluster=cluster)
        assert isinstance(job, PipelineJob)
        (part,) = replace(job, interval=False, brief=True).timed_parts()
    return part


def _cost(part: PartEstimate, seconds: dict[str, float], *, share: float) -> LayersCost:
    """A cost by its seconds, and by a share of the part's bytes and FLOPs."""
    return LayersCost(
        forward_s=seconds["forward"],
        backward_s=seconds["backward"],
        weight_s=seconds.get("weight", 0.0),
        saved_bytes=share * total_bytes(part.saved),
        fixed_bytes=share * (part.parameter_bytes + part.gradient_bytes),
        flops=share * sum(_matrix_flops(each.run) for each in part.programs.values()),
    )


def _matrix_flops(run: Run) -> float:
    return sum(count * kernel.matrix_flops for kernel, count in run.lowered.schedule.walk())


def _turn(part: PartEstimate, program: str) -> float:
    """Seconds of a turn of a program's loops over layers, at the full clock; what is outside of them is not counted.

    The clock that a power cap leaves depends on the whole program: no part runs its turns faster than at the full one.
    """
    spans = part.programs[program].run.full_clock_timeline.spans
    return sum(span.body.duration for span in spans if isinstance(span, Repeat) and span.trips == TURNS)
