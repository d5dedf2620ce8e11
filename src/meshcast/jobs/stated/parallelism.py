"""A run's plan: how its devices share the model and the batch, in the words of `--plan`.

`dp x fsdp x tp x pp x cp` are the run's devices; experts are spread over ranks that share the batch too, so that of `dp x fsdp`
ranks a plan's `ep` takes its part. A step is `gbs / (mbs x dp x fsdp)` microbatches a rank.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

from meshcast.hardware import Device
from meshcast.jobs.planned.settings import near_divisors
from meshcast.jobs.stated.activations import activations_of
from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.run import BATCH, DEGREES, StatedRun
from meshcast.jobs.stated.shapes import RunModel
from meshcast.jobs.stated.systems import RunSystem
from meshcast.options import Stack
from meshcast.zoo import PLAN_WORDS

PlanWords = dict[str, int | str]
_MAXTEXT = ("maxtext",)
WHOLE_TYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32"}
"""Precisions that are a type of arrays, and that type."""
FOUR_BYTES = ("fp32", "tf32")
"""Precisions with activations of as many."""
_STATE_OF_A_WEIGHT = 16  # bytes: in fp32 itself, its gradient and two moments
_ENDS = 2  # the first and the last part have the embedding and the loss, and need no layer
_MOST_SHARING = 64  # ranks that share sequences
_ROUNDED = 0.001  # how far from its fraction a microbatch may be written: 0.333
# A run's words for the precision of products, and the plan's; others are the plan's own or refused by it. Of fp8 all scalings
# but those in hardware (by 32 elements) and those of rows multiply alike.
_PRECISIONS = (
    (r"mx-?fp8|fp8-mx", "mxfp8"),
    (r"fp8-(?:rowwise|axiswise)", "fp8-rowwise"),
    (r"fp8(?:-(?:tensor|delayed|block|current|blockwise|subchannel|tensorwise|cs|ds|sc|te|hybrid))?", "fp8"),
    (r"nv-?fp4|fp4-nv", "nvfp4"),
    (r"(bf16|fp16)-(?:mixed|amp)", r"\1"),
    (r"int8-aqt|aqt-int8|int8-w8a8", "int8"),
)
# Of words that are none of these what they are taken for, by a part of them; the more special ones first.
_NEAREST = (
    (r"fp4|int4", "nvfp4"), (r"mx", "mxfp8"), (r"int8", "int8"), (r"row|channel|axis", "fp8-rowwise"), (r"fp8|e4m3|e5m2", "fp8"),
    (r"tf32", "tf32"), (r"bf16", "bf16"), (r"fp16|amp|mixed|half", "fp16"), (r"32|64|single|double", "fp32"), ("", "bf16"),
)  # fmt: skip


# Words for pipeline schedules, and the plan's. Torch's names have the schedule's class behind them.
_SCHEDULES = (
    (r"interleaved.*|.*looped.*|virtual.*", "interleaved"),
    (r"1f1b.*|pipedream.*|one-forward.*", "1f1b"),
    (r"gpipe|f-then-b|all-forward.*", "gpipe"),
    (r"zero-?bubble-?h?1?|zb(?:-?h)?1?|zbh1", "zb-h1"),
    (r"(?:zero-?bubble-?|zb-?)h?2", "zb-h2"),
)


def plan_text(plan: PlanWords) -> str:
    """The plan as `--plan` takes it; degrees of one are left out."""
    return ",".join(f"{name}={value}" for name, value in plan.items() if name == "dp" or _says_something(name, value))


def _says_something(name: str, value: int | str) -> bool:
    return name not in DEGREES or value not in (0, 1) or (name == "sp" and value == 1)


def plan_of(run: StatedRun, model: RunModel, stack: Stack, system: RunSystem, found: Findings) -> tuple[PlanWords, int]:
    """The plan of a run on its system, and the sequences of a step if all ranks had as many as the fullest ones."""
    shards = {name: run.degree(name) for name in ("tp", "pp", "cp")}
    ranks, rest = divmod(run.devices, math.prod(shards.values()))
    said = " x ".join(f"{name}={size}" for name, size in shards.items() if size > 1)
    if rest or not ranks:
        whole = math.prod(shards.values())
        most = max(run.devices - run.devices % whole, whole)
        found.lacks(
            f"a plan that fits: {said} does not divide {run.devices} devices",
            of="devices",
            fix=f"use {most} or {most + whole} devices, or other degrees",
        )
        return {}, run.counts.get(BATCH, 0)
    plan = _data_parallel(run, model, ranks, found)
    precision = _precision(run, system.cluster.device, found)
    if not model.planned:
        accepted = model.builder.overrides()
        words, batch = _microbatch(run, plan, ranks, shards, found)
        plan |= {"tp": shards["tp"]} if "tensor" in model.axes else {}
        plan |= {"remat": "full"} if run.recompute == "full" and "remat" in model.builder.overrides() else {}
        plan |= {"cp": shards["cp"]} if "context" in model.axes else {}
        plan |= {"sp": run.degrees.get("sp", 1)} if shards["tp"] > 1 and "sequence_parallel" in accepted else {}
        # Of models whose state fits many times over it makes next to no difference, and frameworks reduce it in buckets.
        state = _STATE_OF_A_WEIGHT * model.builder.parameters() / shards["tp"]
        if run.zero == 1 and "zero" in accepted and state > system.cluster.device.memory_bytes / 2:
            plan |= {"zero": 1}
        return plan | words | {"precision": _of_whole_types(precision, model, found)}, batch
    plan |= _sharing(run, plan)
    plan |= shards | {"sp": int(shards["tp"] > 1 and _splits_positions(run, stack) and _divides(run, shards, found))}
    plan |= _schedule(run, model, shards["pp"], found)
    words, batch = _microbatch(run, plan, ranks, shards, found)
    plan |= words
    plan |= activations_of(run, stack, found, in_part="recomputed" in model.settings)
    narrow = stack.name in _MAXTEXT and system.cluster.device.kind == "tpu"
    windowed = bool(getattr(model.config, "window", 0))
    if precision in FOUR_BYTES and stack.attention != "plain":
        found.assumes(f"plain attention: no fused one is known in {precision}")
        stack = replace(stack, attention="plain")
    plan["attention"] = _attention(stack, int(plan["cp"]), narrow=narrow, windowed=windowed)
    gradients = run.extra.values.get("grad_reduce", stack.gradients)
    if gradients != "fp32":
        plan["gradients"] = gradients
    plan["precision"] = precision
    return plan, batch


def _of_whole_types(precision: str, model: RunModel, found: Findings) -> str:
    """The precision of a model that computes in the type of its arrays, and has no products in fewer bits."""
    if precision in WHOLE_TYPES or "products" in model.builder.overrides():
        return precision
    found.contradicts(
        f"precision bf16: {model.name} has no products in {precision}",
        of="precision",
        fix=f"one of {', '.join(WHOLE_TYPES)}",
    )
    return "bf16"


def _data_parallel(run: StatedRun, model: RunModel, ranks: int, found: Findings) -> PlanWords:
    """dp, fsdp and ep, whose product is the number of ranks that share the batch."""
    sharded = run.degree("fsdp")
    if ranks % sharded:
        even = " or ".join(f"fsdp={count}" for count in near_divisors(ranks, sharded))
        found.contradicts(
            f"fsdp={ranks}: fsdp={sharded} does not divide the {ranks} ranks that share the batch",
            of="fsdp",
            fix=f"use {even}",
        )
        sharded = ranks
    plain = ranks // sharded
    if "dp" in run.degrees and run.degree("dp") != plain:
        found.contradicts(
            f"dp={plain}: dp={run.degree('dp')} is not what {ranks} ranks leave",
            of="dp",
            fix=f"leave dp out, or use dp={plain}: dp x fsdp are the {ranks} ranks that tp, pp and cp leave",
        )
    if run.degree("ep") > 1 and not getattr(model.config, "experts", 0):
        found.contradicts(
            f"ep=1: ep={run.degree('ep')} shares out experts, and {run.model} has none", of="ep", fix="leave ep out"
        )
    experts = run.degree("ep") if getattr(model.config, "experts", 0) else 1
    if "whole_experts" in model.settings:
        # A plan's `ep` are ranks that share the batch; the tensor ranks of a group of experts come on top.
        experts //= run.degree("tp")
    plain = ranks // sharded
    outer = math.gcd(experts, sharded)
    inner = math.gcd(experts // outer, plain)
    if outer * inner != experts:
        found.assumes(f"ep={outer * inner}: ep={experts} reaches over tensor ranks, and {ranks} ranks share the batch")
    return {"dp": plain // inner, "fsdp": sharded // outer, "ep": outer * inner}


def _sharing(run: StatedRun, plan: PlanWords) -> PlanWords:
    """ZeRO's stage: what the ranks that share the batch store in shares.

    Stage 2 keeps weights gathered. Beside stages FSDP gathers them once a step and reduces gradients behind the last microbatch
    (torchtitan's `reshard_after_forward: default` and its schedules; Dubey 2024, section 3.3.2), which is what a plan's
    `zero=1` does. Everything is shared out by `fsdp`; ranks that split a sequence are shards too (torchtitan's `dp_shard_cp`).
    """
    sharded, staged = int(plan["fsdp"]), run.degree("pp") > 1
    if run.zero == 2 or (staged and sharded > 1):
        return {"dp": int(plan["dp"]) * sharded, "fsdp": 1, "zero": 1 if staged else 2}
    if run.zero == 1 and int(plan["dp"]) * int(plan["ep"]) * run.degree("cp") > 1:
        return {"zero": 1}  # Megatron's distributed optimizer shares its state out over context ranks too
    if run.zero == 3 and sharded == 1:
        if staged:
            return {"zero": 1}
        if int(plan["dp"]) > 1:
            # DeepSpeed's stage 3 is told of ranks of data parallelism, whose weights are gathered where they are used.
            return {"dp": 1, "fsdp": int(plan["dp"])}
        return {"zero": 3} if run.degree("cp") > 1 else {}
    return {}


def _splits_positions(run: StatedRun, stack: Stack) -> bool:
    """Whether what tensor parallelism leaves whole is split over the same devices.

    MaxText's rules split the residual stream over tensor devices by its width (`activation_embed`), whatever a run says of
    positions; that costs and saves what a plan's `sp` does.
    """
    if stack.name in _MAXTEXT:
        return stack.sequence_parallel
    return run.degrees.get("sp", int(stack.sequence_parallel)) > 0


def _divides(run: StatedRun, shards: dict[str, int], found: Findings) -> bool:
    """Whether tensor ranks can share positions evenly; where not they have all of them."""
    seq, parts = run.counts.get("seq", 0), shards["tp"] * shards["cp"]
    if seq % parts == 0:
        return True
    found.contradicts(
        f"sp=0: a sequence of {seq} is not divided by {parts} ranks of tp and cp",
        of="sp",
        fix="use sp=0, or another tp",
    )
    return False


def _attention(stack: Stack, context: int, *, narrow: bool, windowed: bool) -> str:
    """The stack's attention, and how keys and values reach the devices that split a sequence.

    MaxText's scores are bf16 unless `float32_logits` is set (configs/base.yml). On TPUs they are stored so; on GPUs XLA widens
    every op to fp32 and, allowed more precision than asked for, leaves out the conversions back (`narrow`).
    """
    if context == 1:
        return "plain-bf16" if stack.attention == "plain" and narrow else stack.attention
    # Rings and parts of fused kernels have no windows, and plain products no parts.
    if stack.attention == "plain":
        return "ring" if stack.context_attention == "ring" else "all-gather"
    return "flash-all-gather" if windowed else f"flash-{stack.context_attention}"


def shared_out(layers: int, parts: int) -> list[int]:
    """Layers of every part of a model, in order: as even as they can be, the last and the first ones with fewer.

    The ends have the embedding and the loss to compute besides (Llama 3 takes a layer from each, Dubey 2024, section 3.3.2).
    """
    full = -(-layers // parts)
    counts = [full] * parts
    ends = [place for pair in zip(range(parts - 1, -1, -1), range(parts), strict=True) for place in pair]
    for place in list(dict.fromkeys(ends))[: full * parts - layers]:
        counts[place] -= 1
    return counts


def _schedule(run: StatedRun, model: RunModel, stages: int, found: Findings) -> PlanWords:
    """Virtual stages and the schedule of a pipeline."""
    if stages == 1:
        return {}
    virtual = run.degree("vp")
    plan: PlanWords = {"vp": virtual, "schedule": _schedule_word(run, virtual, found)}
    layers, parts = model.config.layers, stages * virtual
    if virtual > 1 and stages <= layers + _ENDS < parts:
        fewer = (layers + _ENDS) // stages
        found.contradicts(
            f"vp={fewer}: {layers} layers leave parts of pp={stages} x vp={virtual} empty",
            of="vp",
            fix=f"use vp={fewer}",
        )
        virtual, parts = fewer, stages * fewer
        plan = {"vp": virtual, "schedule": _schedule_word(run, virtual, found)}
    if layers < parts - _ENDS:
        found.lacks(
            f"a plan that fits: {layers} layers leave parts of pp={stages} x vp={virtual} empty",
            of="vp" if virtual > 1 else "pp",
            fix=f"use pp x vp of {layers} at the most",
        )
        return {}
    if layers % parts:
        plan["layers-per-stage"] = "+".join(map(str, shared_out(layers, parts)))
        found.assumes(f"{layers} layers over {parts} parts: the last and the first ones have fewer")
    return plan


def _schedule_word(run: StatedRun, virtual: int, found: Findings) -> str:
    """The schedule that a run names (`schedule=zero-bubble`), where there is one of that name for so many virtual stages."""
    usual = "interleaved" if virtual > 1 else "1f1b"
    told = run.extra.values.get("schedule", "").replace("_", "-")
    if not told:
        return usual
    word = next((word for pattern, word in _SCHEDULES if re.fullmatch(pattern, told.removesuffix("-schedule"))), "")
    if word and (word == "interleaved") == (virtual > 1):
        return word
    if not (word == "1f1b" and virtual > 1):
        found.assumes(f"schedule {usual}, of vp={virtual}: no schedule {told} is known for that")
    return usual


def _microbatch(
    run: StatedRun, plan: PlanWords, ranks: int, shards: dict[str, int], found: Findings
) -> tuple[PlanWords, int]:
    """The microbatch, and the global batch, which must be a multiple of what the ranks take at once.

    Where it is no whole number, neighbouring ranks share sequences: of p / q sequences each, q ranks split p by position, and
    store shares of the weights all the same.
    """
    batch, micro = run.counts.get(BATCH), run.mbs
    if batch is None:
        return {}, 0
    if micro is None:
        micro = 1 if shards["pp"] > 1 else batch / ranks
        micro = max(1, int(micro)) if micro >= 1 else micro
        found.assumes(f"mbs={micro:g}")
    exact = Fraction(micro).limit_denominator(_MOST_SHARING)
    if exact.denominator > 1 and abs(exact - Fraction(micro)) < _ROUNDED * exact:
        together, sharing = exact.numerator, exact.denominator
        if int(plan["fsdp"]) % sharing:
            whole = math.ceil(exact)
            words, filled = _other_microbatch(batch, whole, ranks)
            found.contradicts(
                f"{_taken(words, batch, filled)}: a microbatch of {micro:g} does not fit fsdp={plan['fsdp']} ranks",
                of="mbs" if run.mbs is not None else BATCH,
                fix=f"use mbs={whole}, and a gbs that is a multiple of {whole * ranks}",
            )
            return words, filled
        sequences = "a sequence" if together == 1 else f"{together} sequences"
        found.assumes(f"{sharing} ranks share {sequences} by position: mbs={micro:g}")
        words = {"mbs": together, "fsdp": int(plan["fsdp"]) // sharing, "cp": shards["cp"] * sharing, "zero": 3}
        return words, batch
    if micro == int(micro) and batch % (int(micro) * ranks) == 0:
        return {"mbs": int(micro)}, batch
    words, filled = _other_microbatch(batch, micro, ranks)
    step = max(int(micro), 1) * ranks
    near = sorted({max(batch - batch % step, step), batch - batch % step + step})
    fix = f"use {' or '.join(f'gbs={each}' for each in near)}" + ("" if micro == int(micro) else ", and a whole mbs")
    said = f"gbs={batch} is no multiple of mbs={micro:g} x {ranks} ranks"
    found.contradicts(f"{_taken(words, batch, filled)}: {said}", of=BATCH, fix=fix)
    return words, filled


def _other_microbatch(batch: int, micro: float, ranks: int) -> tuple[PlanWords, int]:
    """The largest microbatch up to the one that is told which the ranks can share the batch out in, and that batch.

    Where ranks have unequal numbers of sequences all wait for the fullest ones: the batch is as if all had as many.
    """
    whole = -(-batch // ranks)
    nearest = max(size for size in range(1, max(int(micro), 1) + 1) if whole % size == 0)
    return {"mbs": nearest}, whole * ranks


def _taken(words: PlanWords, batch: int, filled: int) -> str:
    return f"gbs={filled}, what the fullest ranks have for all" if filled != batch else f"mbs={words['mbs']}"


def _precision(run: StatedRun, device: Device, found: Findings) -> str:
    """The plan's word for a run's precision; fp16 is told as bf16 where the device has that at the same rate."""
    if not run.precision:
        found.assumes("precision bf16")
        return "bf16"
    precision = run.precision.replace("_", "-")
    for pattern, word in _PRECISIONS:
        precision = re.sub(f"^(?:{pattern})$", word, precision)
    if precision not in PLAN_WORDS["precision"]:
        told, precision = precision, next(word for pattern, word in _NEAREST if re.search(pattern, precision))
        known = ", ".join(PLAN_WORDS["precision"])
        found.contradicts(f"precision {precision}: plans have no {told}", of="precision", fix=f"one of {known}")
    peaks = device.matrix_flops
    if precision == "fp16" and "bf16" in peaks and peaks["bf16"] == peaks.get("f16", peaks["bf16"]):
        found.assumes("fp16 costs what bf16 does")
        return "bf16"
    return precision
