"""The fused attention that a software stack brings, where nobody says how a model attends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.capture.target import setting_value
from meshcast.models import Builder
from meshcast.models.dtypes import dtype_named
from meshcast.models.words import FUSED_PLATFORMS
from meshcast.plans.plan import Attention, Plan

_HALF = ("bfloat16", "float16")


def with_fused_attention(
    plan: Plan, builder: Builder, settings: Mapping[str, str], context: str, platform: str
) -> Plan:
    """The plan with the fused attention of a stack, if it does not say which and model and device have one.

    Args:
        plan: How the model is shared out.
        builder: The model.
        settings: What `--set` says.
        context: How keys reach devices that split a sequence: `ring` or `all-gather`.
        platform: What programs are lowered for.
    """
    if plan.attention is not None or unfused(builder, settings, platform, precision=plan.precision):
        return plan
    ways: dict[str, Attention] = {"ring": "flash-ring", "all-gather": "flash-all-gather"}
    return replace(plan, attention=ways[context] if plan.cp > 1 else "flash")


def with_fused_setting(builder: Builder, settings: Mapping[str, str], platform: str) -> dict[str, str]:
    """The settings of a model without a plan, likewise."""
    if "attention" in settings or unfused(builder, settings, platform):
        return dict(settings)
    return {**settings, "attention": "flash"}


def unfused(builder: Builder, settings: Mapping[str, str], platform: str, *, precision: str | None = None) -> str:
    """Why a model has no fused attention here; empty where it has.

    Args:
        builder: The model.
        settings: What `--set` says.
        platform: What programs are lowered for.
        precision: Of a plan's training step, which decides it instead of the settings.
    """
    chosen = {name: setting_value(text) for name, text in settings.items()}
    mode = chosen.pop("mode", builder.mode)
    known = builder.overrides(mode)
    if "attention" not in known:
        return f"{builder.name} in mode {mode} has none"
    if platform not in FUSED_PLATFORMS:
        return f"{platform} has none"
    config = builder.configured(**chosen)
    if getattr(config, "alibi", False) or getattr(config, "sinks", False):
        return "ALiBi and attention sinks are for plain attention"
    if platform == "tpu":
        return ""
    if getattr(config, "attention_cap", 0.0):
        return f"capped scores have none on {platform}"
    name = "compute_dtype" if "compute_dtype" in known else "param_dtype"
    in_half = (
        precision not in ("fp32", "tf32")
        if precision is not None and mode == "train"
        else dtype_named(name, chosen.get(name, known[name])) in _HALF
    )
    return "" if in_half else f"{platform} has it in bf16 and fp16 only"


def unfused_note(builder: Builder | None, settings: Mapping[str, str], platform: str) -> str:
    """What a prediction says of a stack's fused attention that comes to nothing; empty where there is nothing to say.

    Models without heads have no attention, and single positions attend to a cache by products whatever the stack.
    """
    if builder is None:
        return "the stack's fused attention is for models of the zoo: a program attends as it is written"
    mode = setting_value(settings["mode"]) if "mode" in settings else builder.mode
    if "attention" in settings or mode == "decode" or not getattr(builder.config, "heads", 0):
        return ""
    why = unfused(builder, settings, platform)
    return f"the stack's fused attention is not used: {why}" if why else ""
