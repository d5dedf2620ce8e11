"""`Plan`: how a model's training step is shared out over devices, as one line of text.

`dp=4,fsdp=8,tp=8,sp=1,pp=8,vp=2,cp=2,ep=1,mbs=1,remat=selective`. Every key has a default, `str(plan)` says what differs
from it, and `Plan.parse(str(plan)) == plan`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from meshcast.base import InfeasibleError, UnsupportedError, UsageError, expect, nearest
from meshcast.zoo.dtypes import dtype_named
from meshcast.zoo.words import AttentionWord, Gradients, Remat

ScheduleWord = Literal["1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2"]
Precision = Literal["bf16", "fp16", "fp32", "tf32", "fp8", "fp8-rowwise", "mxfp8", "nvfp4", "int8"]
Offload = Literal["none", "optimizer", "activations"]

DEGREES = ("dp", "fsdp", "tp", "pp", "cp", "ep")
PLAN_WORDS: dict[str, tuple[str, ...]] = {
    "remat": get_args(Remat),
    "schedule": get_args(ScheduleWord),
    "precision": get_args(Precision),
    "attention": get_args(AttentionWord),
    "offload": get_args(Offload),
    "gradients": get_args(Gradients),
}
# Precisions that others train in and that plans have no products of.
UNMODELLED = ("fp4", "mxfp4", "fp6", "int4")
PLAN_FLAG = "--plan"  # where a plan is given
_EXAMPLES = {"layers-per-stage": "write such as layers-per-stage=7+8x14+7", "hsdp": "write such as hsdp=4x8"}
_LARGEST = 2**24  # of any count: more than any machine has devices, and any model layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a training step is shared out.

    Attributes:
        dp: Replicas, whose gradients are reduced once a step.
        fsdp: Devices that store each weight in shares and gather it where it is used. With `dp` above one it is hybrid
            sharding: shards inside, replicas outside.
        tp: Devices that split heads, feed-forward widths and the vocabulary.
        sp: Whether what tensor parallelism leaves whole (norms, residuals) is split by position over the same devices.
        pp: Pipeline stages.
        vp: Parts of the model that each stage holds.
        cp: Devices that split every sequence.
        ep: Devices that split the experts; they split the batch too.
        mbs: Sequences of a microbatch on each of the devices that split the batch.
        remat: What the backward pass computes again, a word of `zoo.words.Remat`.
        zero: 1: the optimizer's state is shared out over `dp`; 2: gradients too; 3: weights too, as `fsdp` does.
        schedule: The schedule of a pipeline.
        precision: The precision of products: `bf16`, `fp16`, `tf32` and `fp32` (both on fp32 activations), `fp8`,
            `fp8-rowwise`, `mxfp8`, `nvfp4`, `int8`.
        attention: `auto` (as None: what the device has for the model, `jobs.planned.attending`), `plain` products or `flash` (the
            backend's fused kernel); where sequences are split `ring` (keys and values go round) or `all-gather` of plain
            products, `flash-ring`, `flash-all-gather` or `flash-parts` of fused kernels (`flash` is the second then).
        offload: `optimizer`: its state lives in the host's memory; `activations`: what the forward pass saves does until it is
            needed.
        gradients: The type that gradients are added up, kept and reduced over replicas in.
        microbatches: The microbatches of a step; None where the global batch says it.
        layers_per_stage: Layers of every part of the model, in order: `7+8x14+7`. The first has the embedding besides,
            the last the loss, and either may have none else. Empty: shared out evenly.
        stack: The software that runs it, as `--stack` names it (`jobs.planned.stacked`): no program changes by it.
    """

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    sp: bool = False
    pp: int = 1
    vp: int = 1
    cp: int = 1
    ep: int = 1
    mbs: int = 1
    remat: Remat = "none"
    zero: int = 0
    schedule: ScheduleWord | None = None
    precision: Precision = "bf16"
    attention: AttentionWord | None = None
    offload: Offload = "none"
    gradients: Gradients = "fp32"
    microbatches: int | None = None
    layers_per_stage: tuple[int, ...] = ()
    stack: str | None = None

    def __post_init__(self) -> None:
        for name in (*DEGREES, "vp", "mbs"):
            _whole(name, getattr(self, name))
        if self.precision in UNMODELLED:
            raise UnsupportedError(
                f"precision={self.precision}: plans have no such products",
                where=PLAN_FLAG,
                fix=f"one of {', '.join(PLAN_WORDS['precision'])}",
            )
        for name, words in PLAN_WORDS.items():
            if getattr(self, name) not in (*words, None):
                raise UsageError(
                    f"{name}={getattr(self, name)} is none of {', '.join(words)}",
                    where=PLAN_FLAG,
                    fix=nearest(str(getattr(self, name)), words),
                )
        if self.zero not in range(4):
            raise UsageError(f"zero={self.zero} is no stage of ZeRO", where=PLAN_FLAG, fix="0, 1, 2 or 3")
        if self.microbatches is not None:
            _whole("microbatches", self.microbatches)
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Refuses parts that have no meaning together."""
        if self.layers_per_stage:
            if any(layers < 0 for layers in self.layers_per_stage) or not any(self.layers_per_stage):
                raise UsageError(
                    f"layers-per-stage={text_of(self.layers_per_stage)} has no layers",
                    where=PLAN_FLAG,
                    fix=_EXAMPLES["layers-per-stage"],
                )
            if len(self.layers_per_stage) != self.parts:
                raise InfeasibleError(
                    f"layers-per-stage names {len(self.layers_per_stage)} parts, and pp={self.pp} x vp={self.vp} are "
                    f"{self.parts}",
                    where=PLAN_FLAG,
                    fix=f"give {self.parts} numbers",
                )
        for name, given, needed in (
            ("vp", self.vp > 1, "pp"),
            ("schedule", self.schedule is not None, "pp"),
            ("layers-per-stage", bool(self.layers_per_stage), "pp"),
            ("sp", self.sp, "tp"),
        ):
            if given and getattr(self, needed) == 1:
                said = text_of(getattr(self, name.replace("-", "_")))
                raise InfeasibleError(
                    f"{name}={said} needs {needed} above 1, which is {getattr(self, needed)}",
                    where=PLAN_FLAG,
                    fix=f"leave {name} out, or raise {needed}",
                )
        interleaved = self.pipeline_schedule == "interleaved"
        if self.pp > 1 and interleaved != (self.vp > 1):
            raise InfeasibleError(
                f"schedule={self.pipeline_schedule} with vp={self.vp}",
                where=PLAN_FLAG,
                fix="the interleaved schedule has vp of 2 or more, the others have 1",
            )
        if self.offload == "activations" and self.pp > 1:
            raise UnsupportedError(
                f"offload=activations beside pp={self.pp} stages is not modelled",
                where=PLAN_FLAG,
                fix="leave one of them out, or recompute more (remat=full)",
            )
        if self.attention not in ("auto", "plain", "plain-bf16", "flash", None) and self.cp == 1:
            raise InfeasibleError(
                f"attention={self.attention} exchanges keys and values of split sequences, and cp is 1",
                where=PLAN_FLAG,
                fix="raise cp, or use attention=plain or flash",
            )

    @property
    def in_half(self) -> bool:
        """Whether activations are in half precision."""
        return self.precision not in ("fp32", "tf32")

    @property
    def compute_dtype(self) -> str:
        """The type of activations, as models call it."""
        if self.precision == "fp16":
            return "float16"
        return "bfloat16" if self.in_half else "float32"

    @property
    def gradient_dtype(self) -> str:
        """The type of gradients, as models call it."""
        return dtype_named("gradient_dtype", self.gradients)

    @property
    def products(self) -> str:
        """How products with weights are made, a name of `zoo.layers.products.KINDS`."""
        return "plain" if self.precision in ("bf16", "fp16", "tf32", "fp32") else self.precision

    @property
    def devices(self) -> int:
        """The number of devices that the plan is for."""
        return math.prod(getattr(self, name) for name in DEGREES)

    @property
    def degrees(self) -> dict[str, int]:
        """The degrees of the plan above one; their product is the number of devices."""
        return {name: getattr(self, name) for name in DEGREES if getattr(self, name) > 1}

    @property
    def parts(self) -> int:
        """Parts that the model is cut into."""
        return self.pp * self.vp

    @property
    def one_program(self) -> bool:
        """Whether a step is one program: its update is a part like any other, and stands alone where its state is elsewhere."""
        return self.pp == 1 and self.offload != "optimizer"

    @property
    def batch_shards(self) -> int:
        """Devices, of those of a stage, that work on different sequences."""
        return self.dp * self.fsdp * self.ep

    @property
    def pipeline_schedule(self) -> ScheduleWord:
        """The schedule asked for, or the usual one."""
        return self.schedule or ("interleaved" if self.vp > 1 else "1f1b")

    @property
    def splits_backward(self) -> bool:
        """Whether the gradient of the weights is a pass of its own."""
        return self.pp > 1 and self.pipeline_schedule.startswith("zb")

    @property
    def attending(self) -> AttentionWord:
        """The attention asked for, or the simplest one for the plan: `auto` is for whoever knows the device."""
        simplest: AttentionWord = "all-gather" if self.cp > 1 else "plain"
        return simplest if self.attention in (None, "auto") else self.attention

    @property
    def mesh(self) -> dict[str, int]:
        """Axes of a stage's devices, outermost first, without those of size one.

        With ZeRO 3 the replicas store shares of the weights: they are part of "fsdp", which is then there also of size one,
        as devices that split sequences share weights out with it (`Layout.stored`).
        """
        shared = self.zero == 3
        sizes = {
            "data": 1 if shared else self.dp,
            "fsdp": self.fsdp * (self.dp if shared else 1),
            "expert": self.ep,
            "context": self.cp,
            "tensor": self.tp,
        }
        kept = {"fsdp"} if shared and self.cp > 1 else set()
        return {name: size for name, size in sizes.items() if size > 1 or name in kept}

    def microbatches_of(self, batch: int | None) -> int:
        """Microbatches of a step with that global batch; where none is given, what the plan says.

        Raises:
            InfeasibleError: The batch does not make whole microbatches, or not as many as the plan says.
            UsageError: A pipeline without a number of microbatches.
        """
        step = self.mbs * self.batch_shards
        if batch is None:
            if self.microbatches is None and self.pp > 1:
                raise UsageError(
                    f"a pipeline of pp={self.pp} stages needs the global batch",
                    where=PLAN_FLAG,
                    fix="give --set batch=N, or microbatches=N in the plan",
                )
            return self.microbatches or 1
        split = " x ".join(f"{name}={getattr(self, name)}" for name in ("mbs", "dp", "fsdp", "ep"))
        if batch % step:
            raise InfeasibleError(
                f"a global batch of {batch} is no multiple of {step}, which is {split}",
                where=PLAN_FLAG,
                fix=f"use a batch of {-(-batch // step) * step}, or change the plan",
            )
        if self.microbatches not in (None, batch // step):
            raise InfeasibleError(
                f"a global batch of {batch} makes {batch // step} microbatches of {step} ({split}), and the plan says "
                f"microbatches={self.microbatches}",
                where=PLAN_FLAG,
                fix="leave one of them out",
            )
        return batch // step

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan of a text.

        Raises:
            UsageError: It is no list of `key=value`, or a key or a value is not known.
            UnsupportedError: Products of its precision are not modelled.
            InfeasibleError: Its parts do not go together.
        """
        expect(text, str, "a text", where="plan", fix='such as "fsdp=8,tp=2"')
        return cls(**_read(text))

    @staticmethod
    def names_in(text: str | None) -> frozenset[str]:
        """The fields that a plan's text gives (`hsdp=4x8`: `dp` and `fsdp`); none where there is no plan.

        Raises:
            UsageError: As `parse`.
        """
        return frozenset(_read(text)) if text is not None else frozenset()

    def __str__(self) -> str:
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        kept = {name: value for name, value in said.items() if value != _DEFAULTS[name]}
        return ",".join(f"{_spelled(name)}={text_of(value)}" for name, value in (kept or {"dp": self.dp}).items())


def _read(text: str) -> dict[str, Any]:
    """Fields and their values, as a text gives them."""
    found: dict[str, Any] = {}
    for item in (item.strip() for item in text.split(",")):
        key, equals, value = (side.strip() for side in item.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"{item!r} is not KEY=VALUE", where=PLAN_FLAG, fix="write such as dp=4,tp=8,mbs=1")
        if key not in _READERS:
            raise UsageError(f"a plan has no {key!r}", where=PLAN_FLAG, fix=nearest(key, _READERS))
        for name, read in _READERS[key](key, value).items():
            if name in found:
                raise UsageError(f"{name} is given twice", where=PLAN_FLAG, fix="give it once")
            found[name] = read
    return found


def without_key(text: str, key: str) -> str:
    """A plan's text without one of its keys, the others as they are written; where none is left, the plan of defaults."""
    kept = [item.strip() for item in text.split(",") if item.partition("=")[0].strip() != key]
    return ",".join(kept) or str(Plan())


def _spelled(name: str) -> str:
    return name.replace("_", "-")


def text_of(value: Any) -> str:
    """A value as plans write it."""
    if isinstance(value, tuple):
        runs = [(layers, len(list(group))) for layers, group in itertools.groupby(value)]
        return "+".join(f"{layers}x{count}" if count > 1 else str(layers) for layers, count in runs)
    return str(int(value)) if isinstance(value, bool) else str(value)


def _whole(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(
            f"{name}={value} is not a positive integer", where=PLAN_FLAG, fix=f"write such as {_spelled(name)}=2"
        )
    if value > _LARGEST:
        raise UsageError(f"{name}={value} is more than {_LARGEST}", where=PLAN_FLAG, fix="give a smaller number")


def _count(key: str, value: str) -> dict[str, Any]:
    if not (value.isascii() and value.isdecimal()):
        raise UsageError(
            f"{key}={value} is not a positive integer",
            where=PLAN_FLAG,
            fix=_EXAMPLES.get(key, f"write such as {key}=2"),
        )
    if len(value) > len(str(_LARGEST)):
        raise UsageError(f"{key}={value} is more than {_LARGEST}", where=PLAN_FLAG, fix="give a smaller number")
    return {key: int(value)}


def _flag(key: str, value: str) -> dict[str, Any]:
    if value not in ("0", "1"):
        raise UsageError(f"{key}={value} is neither 0 nor 1", where=PLAN_FLAG, fix=f"write {key}=1, or leave it out")
    return {key: value == "1"}


def _layers(key: str, value: str) -> dict[str, Any]:
    """`7+8x14+7`: seven layers, eight in each of fourteen parts, seven."""
    found: list[int] = []
    for item in value.split("+"):
        layers, several, times = item.partition("x")
        if not layers or (several and not times):
            raise UsageError(f"{key}={value} is no list of layers", where=PLAN_FLAG, fix=_EXAMPLES["layers-per-stage"])
        found += [_count(key, layers)[key]] * _count(key, times or "1")[key]
    return {"layers_per_stage": tuple(found)}


def _hybrid(key: str, value: str) -> dict[str, Any]:
    """`hsdp=4x8`: four replicas of eight shards."""
    replicas, _, shards = value.partition("x")
    if not replicas or not shards:
        raise UsageError(f"{key}={value} is not REPLICASxSHARDS", where=PLAN_FLAG, fix=_EXAMPLES["hsdp"])
    return {"dp": _count(key, replicas)[key], "fsdp": _count(key, shards)[key]}


_DEFAULTS = {field.name: field.default for field in fields(Plan)}
_READERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    **{name: _count for name in (*DEGREES, "vp", "mbs", "zero", "microbatches")},
    **{name: lambda key, value: {key: value} for name in PLAN_WORDS},
    "stack": lambda key, value: {key: value},
    "sp": _flag,
    "layers-per-stage": _layers,
    "hsdp": _hybrid,
}
