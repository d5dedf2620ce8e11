"""A run as it can be predicted: a model of the zoo with settings, a plan, a cluster, a stack; what it lacks; what is assumed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.estimate import Values
from meshcast.hardware import Cluster, load_cluster
from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.frameworks import canonical
from meshcast.jobs.stated.lengths import computed_length
from meshcast.jobs.stated.parallelism import PlanWords, plan_of, plan_text
from meshcast.jobs.stated.run import BATCH, StatedRun
from meshcast.jobs.stated.shapes import RunModel, model_of
from meshcast.jobs.stated.software import overlap_of, stack_of
from meshcast.jobs.stated.systems import RunSystem, system_of
from meshcast.jobs.stated.vocabulary import not_understood
from meshcast.options import Stack

UNKNOWN = "not understood"
_ENCODERS = ("bert",)
_OPTIMIZERS = frozenset({"adamw", "sgd", "lamb", "adafactor", "adagrad", "muon", "lion"})
# Families beside decoders that AdamW trains.
_ADAM = ("bert", "t5", "mamba", "hybrid", "transformer", "vit", "swin", "convnext", "dit", "mmdit", "video", "unet")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTarget:
    """Everything that a prediction of a run depends on.

    Attributes:
        model: The zoo's model and its settings, as far as they belong to the model's shape.
        batch: Sequences or samples of a step, as they are told.
        filled_batch: The same if all ranks had as many as the fullest ones, which all wait for: what a program computes and a
            step is timed with. What a run makes in that time is `batch`.
        seq: Tokens of a sequence; None where the model reads none.
        plan: As `--plan` has it, by its keys.
        on: The cluster, with what the run's words say of its network.
        overlap: The stack's rewrites and what the run's words change of them.
        recomputation_told: Whether the source says what is recomputed.
        values: What arrays hold, for power: weights and activations of training are normally distributed, more or less; memory
            that nobody has written is zeros, as the driver clears it.
        missing: What the run lacks; where there is anything, the run cannot be predicted and other fields may be None.
        blamed: Of what is missing or contradictory the field of the run that is to blame, where it is one.
        fixes: Of the same what to change, where that is known.
        assumptions: What was taken for granted.
        contradictions: Those of the assumptions that go against what is told.
    """

    model: RunModel | None
    batch: int
    filled_batch: int
    seq: int | None
    plan: PlanWords
    on: Cluster | None
    devices: int
    hardware_class: str
    stack: Stack | None
    overlap: str
    recomputation_told: bool
    missing: tuple[str, ...]
    assumptions: tuple[str, ...]
    blamed: Mapping[str, str] = field(default_factory=dict)
    fixes: Mapping[str, str] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()
    values: Values = "normal"

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting of the model, the filled `batch` and `seq` among them."""
        given: dict[str, Any] = dict(self.model.settings) if self.model else {}
        given["batch"] = self.filled_batch
        return given | ({"seq": self.seq} if self.seq is not None else {})

    @property
    def plan_text(self) -> str:
        """The plan of the run as `--plan` takes it."""
        return plan_text(self.plan)

    @property
    def command(self) -> str:
        """The prediction as a command; the run's own network rates, beyond the cluster's name, are not in it."""
        if self.model is None or self.on is None or self.stack is None:
            return ""
        settings = "".join(f" --set {name}={_text(value)}" for name, value in self.settings.items())
        # A device of another kind in the cluster's place (a lower power cap) brings the cluster with it.
        usual = load_cluster(self.on.name).device.name == self.on.device.name
        where = (
            f"--on {self.on.name if usual else self.on.device.name} --devices {self.devices} --stack {self.stack.name}"
        )
        overlap = f" --overlap {shlex.quote(self.overlap)}" if self.overlap != self.stack.overlap else ""
        return f"meshcast predict {self.model.name} {where}{overlap} --plan {self.plan_text}{settings}"

    def to_json(self) -> Mapping[str, Any]:
        """The target, plan, cluster and assumptions that the run was turned into."""
        return {
            "model": self.model.name if self.model else None,
            "settings": self.settings,
            "plan": self.plan_text,
            "on": self.on.name if self.on else None,
            "device": self.on.device.name if self.on else None,
            "devices": self.devices,
            "stack": self.stack.name if self.stack else None,
            "overlap": self.overlap,
            "missing": list(self.missing),
            "assumptions": list(self.assumptions),
        }


def run_target(run: StatedRun) -> RunTarget:
    """What a run describes; whatever no rule understands is among `missing`."""
    found = Findings()
    run = replace(run, framework=canonical(run.framework))
    system = system_of(run, found)
    model = model_of(run, found)
    weights = run.extra.values.get("weights", run.extra.values.get("params"))
    if model and model.planned and weights == "bf16":
        model = replace(model, settings={**model.settings, "param_dtype": "bfloat16"})
    stack = stack_of(run, system.cluster.device, found, model) if system else None
    if model and stack and model.recurrent and not stack.host.graphs:
        found.assumes(
            "a recurrent layer is one call of the host, as cuDNN's are: its turns are launched as a graph's are"
        )
        stack = replace(stack, host=replace(stack.host, graphs=True))
    if model and stack and system and _caps_fused_scores(model, stack, system):
        found.assumes("without caps on scores: in a fused kernel, as FlashAttention-2 has them, they cost little")
        model = replace(model, settings={**model.settings, "attention_cap": 0.0})
    devices = run.devices
    batch = run.counts.get(BATCH, 0)
    plan, filled = plan_of(run, model, stack, system, found) if model and stack and system else ({}, batch)
    if BATCH not in run.counts:
        found.lacks(BATCH, of=BATCH)
    seq = None
    if model and model.reads_sequences:
        seq = computed_length(run, encoder=model.builder.module in _ENCODERS, found=found)
    if model:
        _note_optimizer(run, model, found)
    if unknown := not_understood(run.extra):
        found.assumes(f"{UNKNOWN}: {', '.join(unknown)}")
    if run.extra.replayed:
        found.assumes("a replayed program's arguments are memory that nobody has written: zeros")
    return RunTarget(
        model=model,
        batch=batch,
        filled_batch=filled,
        seq=seq,
        plan=plan,
        on=system.cluster if system else None,
        devices=devices,
        hardware_class=system.hardware_class if system else UNKNOWN,
        stack=stack,
        overlap=overlap_of(run, stack, found, planned=model is None or model.planned) if stack else "",
        recomputation_told=bool(run.recompute),
        missing=tuple(dict.fromkeys(found.missing)),
        assumptions=tuple(dict.fromkeys(found.assumptions)),
        blamed=found.blamed,
        fixes=found.fixes,
        contradictions=tuple(dict.fromkeys(found.contradictions)),
        values="zeros" if run.extra.replayed else "normal",
    )


def _note_optimizer(run: StatedRun, model: RunModel, found: Findings) -> None:
    """Notes an optimizer that is another than the zoo's, which there is one of for each kind of model."""
    words = sorted(_OPTIMIZERS & run.extra.words)
    told = run.extra.values.get("optimizer") or next(iter(words), "")
    own = "AdamW" if model.planned or model.builder.module in _ADAM else "SGD with momentum"
    name = next((each for each in _OPTIMIZERS if told.startswith(each)), told)
    if name and not own.lower().startswith(name.removesuffix("w")):
        found.assumes(f"the optimizer is {own}, that of the zoo's model, in place of {name}")


def _caps_fused_scores(model: RunModel, stack: Stack, system: RunSystem) -> bool:
    """Whether a run's fused attention squashes scores (Gemma 2), of which the modelled kernels of GPUs know nothing."""
    capped = bool(getattr(model.config, "attention_cap", 0.0)) and model.planned
    return capped and stack.attention != "plain" and system.cluster.device.kind == "gpu"


def unknown_target(devices: int, missing: tuple[str, ...]) -> RunTarget:
    """Of a run that cannot be read nothing is known but what it lacks."""
    return RunTarget(
        model=None, batch=0, filled_batch=0, seq=None, plan={}, on=None, devices=devices, hardware_class=UNKNOWN, stack=None,
        overlap="", recomputation_told=False, missing=missing, assumptions=(),
    )  # fmt: skip


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
