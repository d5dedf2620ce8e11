"""How a model attends where nobody says: `auto`, the fused kernel where model and device have one, decided for each device.

What a plan or `--set` says stays; a stack says `auto`, `flash` (the same, and a warning where it comes to nothing) or `plain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from meshcast.hardware import Device
from meshcast.jobs.planned.fused_kernels import without_kernel, without_unequal
from meshcast.jobs.planned.settings import length_of
from meshcast.options import Options
from meshcast.programs import setting_value
from meshcast.workload import AttentionLibrary
from meshcast.zoo import AUTO, SERVE, AttentionWord, Builder, Plan, dtype_named

_HALF = ("bfloat16", "float16")
_WAYS: dict[str, AttentionWord] = {"ring": "flash-ring", "all-gather": "flash-all-gather", "parts": "flash-parts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attending:
    """How a model attends on a device.

    Attributes:
        attention: Never `auto`.
        default: Whether neither the plan, the settings nor a stack say it.
        why: Why it is not the fused kernel, where that was wanted.
    """

    attention: AttentionWord
    default: bool
    why: str = ""


def attention_of(builder: Builder, options: Options, device: Device) -> Attending | None:
    """How a model attends under some options, whose stack has been looked up; None where its mode has no choice.

    Of `mode=serve` it is the prompts' pass: single positions attend to the cache by products.
    """
    plan = options.program.plan.value if options.program.plan is not None else None
    mode = _mode(builder, options.program.settings)
    if "attention" not in builder.overrides(mode):
        return None
    said = plan.attention if plan is not None else options.program.settings.get("attention")
    if said not in (None, AUTO):
        return Attending(attention=cast(AttentionWord, said), default=False)
    default = options.program.attention == AUTO
    plain: AttentionWord = plan.attending if plan is not None else "plain"
    if options.program.attention == "plain":
        return Attending(attention=plain, default=default)
    precision = plan.precision if plan is not None else None
    why = unfused(builder, options.program.settings, device, options.lowering.attention_library, precision=precision)
    if not why and default:
        why = _not_by_default(plan, builder, options, device)
    if why:
        return Attending(attention=plain, default=default, why=why)
    split = plan is not None and plan.cp > 1
    return Attending(attention=_way(builder, options) if split else "flash", default=default)


def unfused(
    builder: Builder,
    settings: Mapping[str, str],
    device: Device,
    library: AttentionLibrary = "cudnn",
    *,
    precision: str | None = None,
) -> str:
    """Why a model has no fused attention here; empty where it has.

    Args:
        builder: The model.
        settings: What `--set` says.
        device: What it runs on.
        library: Whose kernels run on NVIDIA's GPUs.
        precision: The precision of a plan's training step, which decides it instead of the settings.
    """
    chosen = {name: setting_value(text) for name, text in settings.items()}
    mode = _mode(builder, settings)
    known = builder.overrides(mode)
    if "attention" not in known:
        return f"{builder.name} in mode {mode} has none"
    config = builder.configured(**chosen)
    widths = config.head_widths
    if why := without_kernel(device, library, widths):
        return why
    if getattr(config, "alibi", False) or getattr(config, "sinks", False):
        return "ALiBi and attention sinks are for plain attention"
    if device.platform == "tpu":
        return ""
    if getattr(config, "latent_rank", 0) and len(set(widths)) > 1 and without_unequal(device, library):
        return f"values of {widths[1]} beside keys of {widths[0]} have none on {device.name}"
    if getattr(config, "attention_cap", 0.0):
        return f"capped scores have none on {device.platform}"
    name = "compute_dtype" if "compute_dtype" in known else "param_dtype"
    in_half = (
        precision not in ("fp32", "tf32")
        if precision is not None and mode == "train"
        else dtype_named(name, chosen.get(name, known[name])) in _HALF
    )
    return "" if in_half else f"{device.platform} has it in bf16 and fp16 only"


def unfused_note(builder: Builder | None, options: Options, device: Device) -> str:
    """What a prediction says of a stack's fused attention that comes to nothing; empty where there is nothing to say.

    Models without heads have no attention, and single positions attend to a cache by products whatever the stack.
    """
    if options.program.attention != "flash" or options.program.plan is not None:
        return ""
    if builder is None:
        return "the stack's fused attention is for models of the zoo: a program attends as it is written"
    settings = options.program.settings
    said = settings.get("attention", AUTO) != AUTO
    if said or _mode(builder, settings) == "decode" or not getattr(builder.config, "heads", 0):
        return ""
    why = unfused(builder, settings, device, options.lowering.attention_library)
    return f"the stack's fused attention is not used: {why}" if why else ""


def _mode(builder: Builder, settings: Mapping[str, str]) -> str:
    mode = str(setting_value(settings["mode"])) if "mode" in settings else builder.mode
    return "prefill" if mode == SERVE and "prefill" in builder.modes else mode


def _not_by_default(plan: Plan | None, builder: Builder, options: Options, device: Device) -> str:
    """Why nobody would choose the fused kernel who does not ask for it, though there is one; empty where they would."""
    if device.kind == "tpu" and "compiled" in (options.estimate.fidelity, options.lowering.kernels):
        return "the TPU's compiler would need the kernel's own code, which the call does not hold"
    if plan is None or plan.cp == 1:
        return ""
    chosen = {name: setting_value(text) for name, text in options.program.settings.items()}
    length, chunks = (
        length_of(builder, builder.configured(**chosen), chosen, mode=_mode(builder, options.program.settings)),
        2 * plan.cp,
    )
    return f"chunks of 2 x cp={plan.cp} do not divide a sequence of {length}" if length and length % chunks else ""


def _way(builder: Builder, options: Options) -> AttentionWord:
    """How fused kernels meet the keys of other devices: as the stack has it, but rings and parts know no windows."""
    chosen = {name: setting_value(text) for name, text in options.program.settings.items()}
    windowed = bool(getattr(builder.configured(**chosen), "window", 0))
    return _WAYS["all-gather" if windowed else options.program.context_attention]
