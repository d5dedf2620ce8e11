"""Other plans for the same devices: attention, recomputation, precision, degrees, microbatches, the schedule; and the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshcast.base import MeshcastError
from meshcast.jobs.levers.candidate import Candidate, Question
from meshcast.jobs.levers.models import attending, in_fp8, larger_batch, recomputing, recomputing_less
from meshcast.jobs.planned.settings import check_device
from meshcast.zoo import Plan, text_of

_AXES = {"dp": "data", "fsdp": "fsdp", "tp": "tensor", "cp": "context", "ep": "expert"}
_SHIFTS = (("tp", "fsdp"), ("fsdp", "tp"), ("dp", "fsdp"), ("fsdp", "dp"), ("pp", "fsdp"), ("cp", "fsdp"))


def of_plan(question: Question) -> Iterator[Candidate]:
    """Keys of the plan changed; nothing where there is no plan."""
    asked = question.asked
    if asked is None or asked.plan is None:
        return
    now = asked.plan
    changes = _of_training(question, now) if asked.mode == "train" else _shifts(question, now)
    for change, bound in changes:
        if bound and (found := planned(question, change)) is not None:
            yield replace(found, bound=bound)
    batch = asked.values().get("batch")
    if isinstance(batch, int) and now.microbatches is None:
        options, bound = question.with_setting("batch", 2 * batch), larger_batch(question)
        yield Candidate(change="twice the batch", flag=f"--set batch={2 * batch}", options=options, bound=bound)


def planned(question: Question, change: Mapping[str, Any]) -> Candidate | None:
    """The plan as the user gave it with some keys changed; None where they do not go together, or nothing changes."""
    asked = question.options.program.plan
    assert asked is not None
    given = asked.value
    try:
        plan = replace(given, **change)
        check_device(plan, question.cluster.device)
    except MeshcastError:
        return None
    if plan == given:
        return None
    brought = question.options.brought
    told = replace(plan, stack=brought.stack) if brought is not None and brought.in_plan else plan
    words = ", ".join(
        f"{key.replace('_', '-')}={text_of(value)} (now {text_of(_now(question, given, key))})"
        for key, value in change.items()
        if getattr(given, key) != value and value not in (None, ())
    )
    kind = "degrees" if {"fsdp", "dp"} & change.keys() else next(iter(change))
    return Candidate(
        change=words, flag=f"--plan {told}", options=question.changed(plan=str(plan)), bound=0.0, kind=kind
    )


def _now(question: Question, given: Plan, key: str) -> Any:
    """What a key of the plan is now, also where nobody has said it."""
    asked = question.asked
    if key == "attention" and asked is not None and asked.plan is not None:
        return asked.plan.attending
    return getattr(given, key) if getattr(given, key) is not None else given.pipeline_schedule


def _of_training(question: Question, now: Plan) -> Iterator[tuple[dict[str, Any], float]]:
    """(keys, the share of the time that they can save)."""
    exposed = question.share("exposed_communication")
    if not now.attending.startswith("flash") and not question.unfused:
        yield {"attention": "flash-all-gather" if now.cp > 1 else "flash"}, attending(question)
    for word in recomputing_less(question, now.remat):
        yield {"remat": word}, recomputing(question)
    if now.precision in ("bf16", "fp32", "tf32"):
        finer = "bf16" if now.precision != "bf16" else "fp8"
        yield {"precision": finer}, in_fp8(question) if finer == "fp8" else question.share("compute") / 2
    if now.tp > 1 and not now.sp:
        yield {"sp": True}, (exposed + question.share("memory")) / 4
    if now.offload != "none":
        yield {"offload": "none"}, exposed + question.share("memory")
    if now.gradients == "fp32" and (reduced := question.exposed("data", "fsdp")):
        yield {"gradients": "bf16"}, reduced / 4
    if now.dp > 1 and now.zero == 0:
        yield {"zero": 1}, question.share("memory") / 8
    yield {"mbs": 2 * now.mbs}, question.share("overhead") + question.exposed("fsdp") / 2
    yield from _of_stages(question, now)
    yield from _shifts(question, now)


def _of_stages(question: Question, now: Plan) -> Iterator[tuple[dict[str, Any], float]]:
    """What makes the bubble smaller: interleaved parts, passes in halves, smaller microbatches."""
    waiting = question.share("idle")
    if now.pp == 1:
        return
    if now.vp == 1:
        yield {"vp": 2, "schedule": None, "layers_per_stage": ()}, waiting / 2
        if now.schedule != "zb-h1":
            yield {"schedule": "zb-h1"}, waiting / 2
    if now.mbs % 2 == 0:
        yield {"mbs": now.mbs // 2}, waiting / 2


def _shifts(question: Question, now: Plan) -> Iterator[tuple[dict[str, Any], float]]:
    """Degrees from one key to another, of the same product: half of one, or all of it."""
    for less, more in _SHIFTS:
        size = getattr(now, less)
        if size % 2:
            continue
        bound = question.share("idle") if less == "pp" else question.exposed(_AXES[less])
        for factor in sorted({2, size}):
            change: dict[str, Any] = {less: size // factor, more: factor * getattr(now, more)}
            if less == "tp" and size == factor:
                change["sp"] = False
            if less == "pp":
                change |= {"layers_per_stage": ()} | ({"vp": 1, "schedule": None} if size == factor else {})
            yield change, bound * (1 - 1 / factor)
