"""A plan with stages: the model's layers shared out over parts, equal parts once, and the pipeline of their programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from meshcast.base import InfeasibleError, UnsupportedError, UsageError, kept_for_programs
from meshcast.jobs.pipeline import Part, Pipeline, pipeline_of
from meshcast.jobs.planned.settings import check, microbatches_of, near_divisors
from meshcast.partition import ask_ahead
from meshcast.simulate import interleaved_group, near_groups
from meshcast.zoo import PLAN_FLAG, Builder, Plan, text_of

# What a part of a model is made with; everything else that is set belongs to its configuration.
_KEYWORDS = ("seq", "batch")


def layers_of_parts(plan: Plan, layers: int, name: str) -> tuple[int, ...]:
    """How many layers each part of the model has, in order.

    Raises:
        InfeasibleError: They cannot be shared out evenly, or do not add up.
    """
    if plan.layers_per_stage:
        if sum(plan.layers_per_stage) != layers:
            raise InfeasibleError(
                f"layers-per-stage adds up to {sum(plan.layers_per_stage)}, and {name} has {layers} layers",
                where=PLAN_FLAG,
                fix="change one of the numbers",
            )
        if 0 in plan.layers_per_stage[1:-1]:
            place = plan.layers_per_stage.index(0, 1)
            raise InfeasibleError(
                f"part {place + 1} of {plan.parts} has no layers, and nothing else to do: the first part has the embedding, "
                "the last one the loss",
                where=PLAN_FLAG,
                fix="give it a layer, or have fewer parts (pp x vp)",
            )
        return plan.layers_per_stage
    each, left = divmod(layers, plan.parts)
    if left or not each:
        whole = " or ".join(str(count) for count in near_divisors(layers, plan.parts)) or "no"
        fix = f"{whole} parts are even"
        if each:
            uneven = (*(each + 1,) * left, *(each,) * (plan.parts - left))
            fix = f"use layers-per-stage={text_of(uneven)}; {fix}"
        raise InfeasibleError(
            f"the {layers} layers of {name} cannot be shared out evenly over pp={plan.pp} x vp={plan.vp} parts",
            where=PLAN_FLAG,
            fix=fix,
        )
    return (each,) * plan.parts


def build_pipeline(builder: Builder, plan: Plan, settings: Mapping[str, Any], platform: str) -> Pipeline:
    """The pipeline of a model under a plan.

    Raises:
        InfeasibleError: The plan does not divide the model or the batch.
        UnsupportedError: The model cannot be cut, or not so.
        UsageError: A setting is not known.
    """
    config = builder.configured(**settings)
    check_cut(plan, builder, settings)
    microbatches = _microbatches(plan, settings)
    counts = layers_of_parts(plan, config.layers, builder.name)
    made: list[tuple[str, int, Future[tuple[Any, ...]], Future[Any]]] = []
    # While Shardy has one part's forward pass, which its backward pass waits for, the next part is traced.
    with ThreadPoolExecutor() as pool:
        for name, same, key in _different_parts(builder, plan, settings, platform, counts):
            made.append((name, same, pool.submit(_passes, key.of_passes()), pool.submit(_update, key.of_update())))
    parts = []
    for name, count, passes, update in made:
        forward, backward, *weight = passes.result()
        parts.append(
            Part(
                name=name,
                forward=forward,
                backward=backward,
                weight=weight[0] if weight else None,
                update=update.result(),
                count=count,
            )
        )
    replicas = ["data"] if plan.mesh.get("data", 1) > 1 else []
    return pipeline_of(
        parts,
        microbatches=microbatches,
        mesh=plan.mesh,
        schedule=plan.pipeline_schedule,
        virtual_stages=plan.vp,
        reduce_over=replicas,
        reduce_kind="reduce_scatter" if plan.zero == 1 else "all_reduce",
        buckets=max(counts),
        tied=("['entry']", "['exit']"),
        host_state_pieces=max(1, *counts) if plan.offload == "optimizer" else 0,
        name=f"{builder.name} ({plan})",
    )


def layers_pipeline(
    builder: Builder, plan: Plan, settings: Mapping[str, Any], platform: str, *, first: int, layers: int,
    last: bool = False,
) -> Pipeline:  # fmt: skip
    """A model's layers from `first` on as one part that does not begin the model, twice a step.

    Its passes are those of every part of so many such layers, whatever the stages and replicas around it.

    Args:
        builder: The model.
        plan: How the layers are shared out; stages and replicas are not looked at.
        settings: What is set besides.
        platform: What to lower for.
        first: The first of the layers.
        layers: How many.
        last: Whether the part ends the model.
    """
    key = _PartKey(
        builder=builder,
        config=builder.configured(**settings),
        start=first,
        layers=layers,
        is_first=False,
        is_last=last,
        seq=settings.get("seq"),
        plan=_of_part(plan),
        apart=plan.splits_backward,
        platform=platform,
    ).of_passes()
    forward, backward, *weight = _passes(key)
    part = Part(name="layers", forward=forward, backward=backward, weight=weight[0] if weight else None)
    return pipeline_of([part], microbatches=2, mesh=key.plan.mesh, name=f"{builder.name}, layers ({plan})")


def _of_part(plan: Plan) -> Plan:
    """What a part knows of a plan: the cut and the schedule are around it."""
    return replace(plan, pp=1, vp=1, schedule=None, microbatches=None, layers_per_stage=(), offload="none")


def check_cut(plan: Plan, builder: Builder, settings: Mapping[str, Any]) -> None:
    """Refuses models that cannot be cut, and what is set beside a plan's stages and is not theirs.

    Raises:
        InfeasibleError: The plan does not divide the model, or asks for what a pipeline does not do.
        UnsupportedError: The model has no parts.
        UsageError: A setting is none of stages.
    """
    config = builder.configured(**settings)
    module = builder.family
    if not hasattr(module, "sections"):
        asked = f"pp={plan.pp}" if plan.pp > 1 else f"offload={plan.offload}"
        raise UnsupportedError(
            f"{builder.name} cannot be cut into stages or have its update apart, as {asked} does",
            where=PLAN_FLAG,
            fix=f"leave {asked} out, or use a GPT or decoder of the zoo",
        )
    if plan.zero == 2:
        raise InfeasibleError(
            "zero=2 reduces gradients of every microbatch, and a pipeline reduces them once a step",
            where=PLAN_FLAG,
            fix="use zero=1 (state shared out), or fsdp",
        )
    known = {*_KEYWORDS, *(name for name in builder.overrides("train") if hasattr(config, name))}
    if unknown := next((name for name in settings if name not in known), None):
        raise UsageError(
            f"{unknown} is no setting of a plan's stages", where="--set", fix="they are " + ", ".join(sorted(known))
        )
    check(plan, builder, settings, mode="train")


def _microbatches(plan: Plan, settings: Mapping[str, Any]) -> int:
    """Microbatches of a step, which interleaved stages take in equal groups."""
    microbatches = microbatches_of(plan, settings)
    if plan.pipeline_schedule == "interleaved" and interleaved_group(plan.pp, microbatches) is None:
        step = plan.mbs * plan.batch_shards
        near = near_groups(plan.pp, microbatches)
        numbers, batches = (" or ".join(map(str, found)) for found in (near, [count * step for count in near]))
        raise InfeasibleError(
            f"interleaved stages take microbatches in equal groups of pp={plan.pp} or more, and a step has {microbatches}",
            where=PLAN_FLAG,
            fix=f"use {numbers} microbatches (a batch of {batches}), or vp=1",
        )
    return microbatches


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartKey:
    """Everything that a part's programs depend on: equal keys have equal programs, which are made once."""

    builder: Builder
    config: Any
    start: int
    layers: int
    is_first: bool
    is_last: bool
    seq: int | None
    plan: Plan
    apart: bool
    platform: str

    def of_passes(self) -> _PartKey:
        """What the passes depend on: replicas, and how they share the optimizer out, are outside of them."""
        plan = self.plan if self.plan.zero == 3 else replace(self.plan, dp=1, zero=0)
        return replace(self, plan=plan)

    def of_update(self) -> _PartKey:
        """What the update depends on: changing the microbatch leaves it as it is, and so do replicas that share nothing out."""
        replicas = self.plan.dp if self.plan.zero else 1
        plan = replace(self.plan, mbs=1, remat="none", sp=False, attention=None, dp=replicas)
        return replace(self, apart=False, plan=plan)

    def made(self) -> tuple[Any, Any, Any]:
        """What the part is made of, which one it is, and how its programs are captured."""
        from meshcast.jobs.planned.programs import PartKind, captured_as
        from meshcast.zoo import MeshLayout

        plan = self.plan
        sections = self.builder.family.sections(
            self.config,
            first=self.start,
            layers=self.layers,
            mesh={axis: size for axis, size in plan.mesh.items() if axis != "data"},
            remat=plan.remat,
            sequence_parallel=plan.sp,
            attention=plan.attending,
            products=plan.products,
            **({} if self.seq is None else {"seq": self.seq}),
        )
        kind = PartKind(
            first=self.is_first,
            last=self.is_last,
            rows=plan.mbs * plan.batch_shards // plan.mesh.get("data", 1),
            dtype=plan.compute_dtype,
            gradients=plan.gradient_dtype,
            spread=MeshLayout.of(plan.mesh, axes=tuple(plan.mesh))
            if plan.zero == 1 and plan.dp * plan.ep * plan.cp > 1
            else None,
        )
        last = self.start + self.layers - 1
        name = f"{self.builder.name}, layers {self.start} to {last}" if self.layers else f"{self.builder.name}, an end"
        return sections, kind, captured_as(name, self.platform, precise=plan.precision == "fp32")


def _different_parts(
    builder: Builder, plan: Plan, settings: Mapping[str, Any], platform: str, counts: tuple[int, ...]
) -> Iterator[tuple[str, int, _PartKey]]:
    """Parts in order, equal ones in a row once: their name, how many they are, and what their programs depend on."""
    config = builder.configured(**settings)
    starts = list(itertools.accumulate((0, *counts[:-1])))
    kinds = [
        (config.part(start, layers), number == 0, number == len(counts) - 1)
        for number, (start, layers) in enumerate(zip(starts, counts, strict=True))
    ]
    number = 0
    for (_, is_first, is_last), group in itertools.groupby(kinds):
        same = len(list(group))
        key = _PartKey(
            builder=builder,
            config=config,
            start=starts[number],
            layers=counts[number],
            is_first=is_first,
            is_last=is_last,
            seq=settings.get("seq"),
            plan=_of_part(plan),
            apart=plan.splits_backward,
            platform=platform,
        )
        yield _named(number, same, len(counts)), same, key
        number += same


@kept_for_programs
def _passes(key: _PartKey) -> tuple[Any, ...]:
    from meshcast.jobs.planned.programs import pass_programs

    forward, *rest = pass_programs(*key.made(), apart=key.apart)
    for program in rest:
        ask_ahead(program)
    return forward, *rest


@kept_for_programs
def _update(key: _PartKey) -> Any:
    from meshcast.jobs.planned.programs import update_program

    return update_program(*key.made())


def _named(first: int, count: int, parts: int) -> str:
    """What a part, or some equal ones in a row, are called."""
    if first == 0:
        return "first"
    if first + count == parts:
        return "last"
    return f"part {first + 1}" if count == 1 else "middle"
