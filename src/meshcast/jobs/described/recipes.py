"""What a stack's recipes choose and a plan leaves unsaid: a plan means what it says, so that this is told and not taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshcast.base import MeshcastError
from meshcast.jobs.described.asked import Asked
from meshcast.jobs.planned.settings import step_settings
from meshcast.jobs.planned.stages import check_cut
from meshcast.options import Brought
from meshcast.programs import setting_value
from meshcast.zoo import Builder, Plan, text_of


def unsaid_recipes(asked: Asked, brought: Brought | None) -> tuple[str, ...]:
    """One warning with the words that a training plan needs to be one of the stack's recipes; none where it is one.

    What the plan's text says stays as it is, also where that is a default.

    Args:
        asked: What the model is asked for.
        brought: What a stack has brought.
    """
    plan = asked.plan
    if plan is None or brought is None or asked.mode != "train":
        return ()
    settings = {name: setting_value(text) for name, text in asked.settings.items()}
    chosen, taken = plan, dict[str, Any]()
    for key, value in brought.recipe.items():
        if key in asked.said or getattr(plan, key) == value or not _has_effect(plan, key):
            continue
        try:
            chosen = _carried_out(replace(chosen, **{key: value}), asked.builder, settings)
        except MeshcastError:  # no word for this model, its sizes or the plan's other words
            continue
        taken[key] = value
    if not taken:
        return ()
    words = ",".join(f"{key}={text_of(value)}" for key, value in taken.items())
    meant = ",".join(f"{key}={text_of(getattr(plan, key))}" for key in taken)
    return (
        f"{brought.stack}'s recipes also have {words}, which the plan does not say (it means {meant}): add them to "
        "--plan",
    )


def _has_effect(plan: Plan, key: str) -> bool:
    """Whether there are devices that a key is about; recipes whose weights are in shares have the optimizer's state so, too."""
    if key == "sp":
        return plan.tp > 1
    if key == "zero":
        replicas = plan.dp if plan.pp == 1 else plan.dp * plan.ep * plan.cp  # `Layout.spread`, `spread_over_replicas`
        return replicas > 1 and plan.fsdp == 1
    return True


def _carried_out(plan: Plan, builder: Builder, settings: Mapping[str, Any]) -> Plan:
    """The plan itself, where the model can be trained by it.

    Raises:
        MeshcastError: It cannot.
    """
    if plan.one_program:
        step_settings(plan, builder, settings)
    else:
        check_cut(plan, builder, settings)
    return plan
