"""Why the best plan is the best: what its step is spent on beside the next one, and what other values of its keys give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meshcast.base import format_time
from meshcast.explore.bounds import PlanBound
from meshcast.explore.point import PARTS
from meshcast.explore.search import Found
from meshcast.zoo import Plan, text_of

KEYS = ("tp", "pp", "vp", "fsdp", "cp", "ep", "mbs", "remat", "sp", "zero", "schedule", "precision", "offload")
_WORDS = {"exposed_communication": "waiting for links", "memory": "moving memory", "idle": "idle"}
SMALL = 0.002  # of a step: differences below it are not told


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """The best plan with another value of one key.

    Attributes:
        key: The key.
        now: Its value in the best plan.
        value: The other one.
        step_time_s: The best step with it; of plans that were not predicted, the least that it can be.
        exact: Whether it was predicted.
        plan: The plan.
        fits: Whether any such plan can run at all, as far as is known.
    """

    key: str
    now: str
    value: str
    step_time_s: float | None
    exact: bool
    plan: str
    fits: bool


def beside(best: Found, other: Found) -> str:
    """What the best plan spends less, and more, of a step on than another."""
    mine, theirs = best.outcome, other.outcome
    if mine.step_time_s is None or theirs.step_time_s is None:
        return ""
    saved = {part: theirs.breakdown_s.get(part, 0.0) - mine.breakdown_s.get(part, 0.0) for part in PARTS}
    told = sorted((part for part in PARTS if abs(saved[part]) > SMALL * mine.step_time_s), key=lambda p: -saved[p])
    parts = [
        f"{format_time(abs(saved[part]))} {'less' if saved[part] > 0 else 'more'} {_WORDS.get(part, part)}"
        for part in told
    ]
    return ", ".join(parts) or "the same in every part"


def others(
    best: Found, found: Iterable[Found], left_out: Iterable[tuple[Plan, PlanBound]], capacity_bytes: float
) -> list[Other]:
    """For each key, the best plan that has another value there, predicted or bounded, the nearest rival first.

    Points without an answer are passed over: that a model has no such axis says nothing of what fits.
    """
    assert best.point.plan is not None
    mine = Plan.parse(best.point.plan)
    rivals: dict[str, Other] = {}

    def offer(plan: Plan, seconds: float | None, *, exact: bool, fits: bool) -> None:
        for key in KEYS:
            value = getattr(plan, key)
            if value == getattr(mine, key):
                continue
            known = rivals.get(key)
            other = Other(
                key=key,
                now=text_of(getattr(mine, key)),
                value=text_of(value),
                step_time_s=seconds,
                exact=exact,
                plan=str(plan),
                fits=fits,
            )
            if known is None or _rank(other) < _rank(known):
                rivals[key] = other

    for each in found:
        if each.point.plan is not None and each.outcome.status in ("answered", "infeasible"):
            plan = Plan.parse(each.point.plan)
            offer(plan, each.outcome.step_time_s, exact=True, fits=each.outcome.answered)
    for plan, bound in left_out:
        offer(plan, bound.time_s, exact=False, fits=bound.memory_bytes <= capacity_bytes)
    return sorted(rivals.values(), key=_rank)


def _rank(other: Other) -> tuple[bool, bool, float]:
    """What fits before what does not; of both, the faster one."""
    return not other.fits, not other.exact, other.step_time_s if other.step_time_s is not None else float("inf")
