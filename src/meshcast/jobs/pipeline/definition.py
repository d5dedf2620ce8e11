"""`Pipeline`: a model cut into parts, each with programs of its own, and how a step goes through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from meshcast.base import Mesh, UsageError, expect, read_mesh
from meshcast.simulate import interleaved_group

ReductionKind = Literal["all_reduce", "reduce_scatter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientReduction:
    """How a part's gradients are reduced over replicas, once a step.

    Attributes:
        over: Mesh axes of the stage that hold replicas.
        kind: `all_reduce`, or `reduce_scatter` for a sharded optimizer: its results are gathered after the update.
        buckets: Pieces that can go while the last backward pass still runs; 1 reduces behind it.
    """

    over: tuple[str, ...]
    kind: ReductionKind = "all_reduce"
    buckets: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWiring:
    """Which arguments and results of the programs belong together, by the first part of their names.

    A name is an argument's path (`params['w']`) or a result's (`result[1]['x']`, as JAX calls them). The defaults fit

        forward(params, x) -> (y, saved)
        backward(params, saved, dy, gradients) -> (dx, gradients)
        update(params, gradients, opt_state) -> (params, opt_state)

    and, where the backward pass is split,

        backward(params, saved, dy) -> (dx, weight_saved)
        weight(params, saved, weight_saved, gradients) -> gradients
    """

    parameters: str = "params"
    optimizer_state: str = "opt_state"
    gradients: str = "gradients"
    input: str = "x"
    output: str = "result[0]"
    saved: str = "saved"
    saved_output: str = "result[1]"
    output_gradient: str = "dy"
    input_gradient: str = "result[0]"
    gradients_output: str = "result[1]"
    weight_saved: str = "weight_saved"
    weight_saved_output: str = "result[1]"
    weight_gradients_output: str = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the model. Programs are whatever `predict` takes as a target.

    Attributes:
        name: What to call it.
        forward: One microbatch forward.
        backward: One microbatch backward; where `weight` is given, the gradient of the input alone.
        weight: The gradient of the weights.
        update: The optimizer, once a step.
        count: How many parts in a row are equal to this one; they share its estimate.
        where: The place in a file that it comes from.
    """

    name: str
    forward: Any
    backward: Any
    weight: Any = None
    update: Any = None
    count: int = 1
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A model cut into parts, and how a step goes through them.

    Attributes:
        name: What to call it.
        parts: From the input to the loss.
        mesh: The mesh of each stage's devices, outermost axis first. Programs may be written for its inner axes alone: the outer
            ones are replicas then.
        microbatches: The microbatches of a step.
        schedule: A name of `simulate.pipelines.SCHEDULES`.
        virtual_stages: Parts that each stage holds.
        reduction: The reduction of the gradients; None where the programs do it themselves, or there is none.
        tied: Where the first and the last part have the gradients of weights that they share, such as `['entry']` and
            `['exit']`: what has the same path behind both is summed over the two once a step; None where nothing is.
        host_state_pieces: Pieces in which the optimizer's state comes from the host's memory and goes back, where it lives
            there; 0 where it lives on the devices.
        overlap_sends: Whether stages compute while they send.
        barrier: Whether all stages wait for each other between steps; None for what is usual with the schedule.
        wiring: Which arguments and results belong together.
        source: The file it comes from.
    """

    name: str
    parts: tuple[Part, ...]
    mesh: Mesh = field(default_factory=Mesh)
    microbatches: int
    schedule: str = "1f1b"
    virtual_stages: int = 1
    reduction: GradientReduction | None = None
    tied: tuple[str, str] | None = None
    host_state_pieces: int = 0
    overlap_sends: bool = True
    barrier: bool | None = None
    wiring: PartWiring = field(default_factory=PartWiring)
    source: str = "pipeline"

    @property
    def positions(self) -> int:
        """Number of parts, equal ones counted."""
        return sum(part.count for part in self.parts)

    @property
    def stages(self) -> int:
        """Number of stages.

        Raises:
            UsageError: The parts cannot be shared out evenly.
        """
        stages, left = divmod(self.positions, self.virtual_stages)
        if left or not stages:
            raise UsageError(
                f"{self.positions} parts cannot be shared out among stages of {self.virtual_stages} each",
                where=self.source,
                fix="change virtual_stages, or the counts of the parts",
            )
        return stages

    @property
    def devices(self) -> int:
        """Devices of all stages."""
        return self.stages * self.mesh.size


def pipeline_of(
    parts: Sequence[Part],
    *,
    microbatches: int,
    mesh: Mapping[str, int] | Mesh | str | None = None,
    schedule: str = "1f1b",
    virtual_stages: int = 1,
    reduce_over: Sequence[str] = (),
    reduce_kind: ReductionKind = "all_reduce",
    buckets: int = 1,
    tied: tuple[str, str] | None = None,
    host_state_pieces: int = 0,
    overlap_sends: bool = True,
    barrier: bool | None = None,
    wiring: PartWiring | None = None,
    name: str = "pipeline",
) -> Pipeline:
    """A pipeline from Python: `pipeline_of([Part(name="first", forward=..., backward=...), ...], microbatches=8)`.

    Args:
        parts: From the input to the loss; `count` repeats one.
        microbatches: The microbatches of a step.
        mesh: The mesh of each stage's devices, outermost axis first: a dict, a `Mesh`, or a text.
        schedule: `gpipe`, `1f1b`, `interleaved`, `zb-h1` or `zb-h2`.
        virtual_stages: Parts that each stage holds.
        reduce_over: Mesh axes over which gradients are reduced once a step.
        reduce_kind: How.
        buckets: Pieces of that reduction.
        tied: Where the first and the last part have the gradients of weights that they share.
        host_state_pieces: Pieces in which the optimizer's state comes from the host's memory; 0 where it is not there.
        overlap_sends: Whether stages compute while they send.
        barrier: Whether all stages wait for each other between steps.
        wiring: Which arguments and results of the programs belong together.
        name: What to call it.

    Raises:
        UsageError: The parts are none, or a number or a name is not what it has to be.
    """
    fix = "such as [meshcast.Part(name=..., forward=..., backward=...)]"
    expect(parts, Sequence, "a list of meshcast.Part", where="parts", fix=fix)
    for part in parts:
        expect(part, Part, "a list of meshcast.Part", where="parts", fix=fix)
    reduction = GradientReduction(over=tuple(reduce_over), kind=reduce_kind, buckets=buckets) if reduce_over else None
    return checked(
        Pipeline(
            name=name,
            parts=tuple(replace(part, where=part.where or part.name) for part in parts),
            mesh=Mesh.of(read_mesh("mesh", mesh) or {}),
            microbatches=microbatches,
            schedule=schedule,
            virtual_stages=virtual_stages,
            reduction=reduction,
            tied=tied,
            host_state_pieces=host_state_pieces,
            overlap_sends=overlap_sends,
            barrier=barrier,
            wiring=wiring or PartWiring(),
        )
    )


def checked(pipeline: Pipeline) -> Pipeline:
    """The pipeline, after making sure that its numbers and programs are all there.

    Raises:
        UsageError: Something is missing, or names what the pipeline does not have.
    """
    if not pipeline.parts:
        raise UsageError("a pipeline needs at least one part", where=pipeline.source, fix="add [[stages]]")
    for part in pipeline.parts:
        if part.count < 1:
            raise UsageError(f"part {part.name!r} has count {part.count}", where=part.where, fix="at least 1")
        for what in ("forward", "backward"):
            if getattr(part, what) is None:
                raise UsageError(
                    f"part {part.name!r} has no {what} program",
                    where=part.where,
                    fix=f"give {what}: a file, path.py:function, or (fn, args); it is not derived from the other one",
                )
    for axis in pipeline.reduction.over if pipeline.reduction else ():
        if axis not in pipeline.mesh.sizes:
            raise UsageError(
                f"gradients are reduced over {axis!r}, which is no axis of the mesh ({pipeline.mesh})",
                where=pipeline.source,
                fix="name axes of `mesh`",
            )
    _ = pipeline.stages
    return pipeline


def interleaves(stages: int, microbatches: int) -> bool:
    """Whether microbatches make equal groups of the stages or more, as interleaved stages send them on."""
    return microbatches >= stages and interleaved_group(stages, microbatches) is not None
