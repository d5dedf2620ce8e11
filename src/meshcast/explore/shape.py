"""`ModelShape`: what plans must divide of a model, and what their bounds are counted from; nothing is traced for it."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import UsageError
from meshcast.programs import setting_value
from meshcast.zoo import FAMILIES, Builder, hint, model_named, num_parameters

# Settings of training steps that the usual values of a plan's keys decide; convolutional networks have none of them.
PLANNED = frozenset({"remat", "sequence_parallel", "zero"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a model with its settings; zero where it has no such thing.

    Attributes:
        name: The model.
        layers: Its layers; zero where it cannot be cut into stages.
        first: The first layer of the kind that most layers have.
        period: Layers after which their pattern begins again.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        experts: Routed experts of a layer.
        width: The width of the activations.
        vocab: Rows of the output projection.
        seq: Positions of a sequence.
        batch: Sequences of a step, where that is set.
        parameters: All of them.
        routed_flops: Of a layer with routed experts: FLOPs of a sequence's products with weights, both passes, at least. The
            products that move tokens to experts and back, and slots that nobody takes, depend on how tokens are grouped, and
            so on the plan.
        unit: What its batch is counted in: tokens, images, samples.
        decided: Which of the settings that plans decide its training step has (`PLANNED`); plans leave the others out.
    """

    name: str
    layers: int
    first: int
    period: int
    heads: int
    kv_heads: int
    experts: int
    width: int
    vocab: int
    seq: int
    batch: int | None
    parameters: int
    unit: str
    routed_flops: float = 0.0
    decided: frozenset[str] = PLANNED

    @property
    def staged(self) -> bool:
        """Whether it can be cut into stages."""
        return self.layers > 0

    def units(self, batch: int) -> int:
        """What a step with that batch gets done, in the model's unit."""
        return batch * (self.seq if self.unit == "tokens" and self.seq else 1)


def model_shape(target: str, settings: Mapping[str, str]) -> ModelShape:
    """The shape of a model of the zoo, or of a Hugging Face configuration, that trains.

    Raises:
        UsageError: The target is no model, is asked to do something else, or has no such settings.
    """
    return _shape(target, tuple(sorted(settings.items())), file_stamp(target))


def file_stamp(target: str) -> Hashable:
    """What changes where the file that a target names, or the configuration in its folder, is written anew; None without one.

    What a search knows of a target is kept by its name and this: every point asks for it again.
    """
    path = Path(target)
    try:
        found = (path / "config.json" if path.is_dir() else path).stat()
    except (OSError, ValueError):  # no file, or no name of one
        return None
    return found.st_mtime_ns, found.st_size


def named_model(target: str) -> Builder | None:
    """The model that a target names, read once; None where it is anything else.

    Raises:
        InputError: The file is no configuration, or lacks a size.
        UnsupportedError: Its model, or a variant of it, is not in the zoo.
    """
    return _model(target, file_stamp(target))


@functools.lru_cache(maxsize=64)
def _model(target: str, _stamp: Hashable) -> Builder | None:
    return model_named(target)


def builder_of(target: str) -> Builder:
    """The model that a target names.

    Raises:
        UsageError: It is a program already.
    """
    builder = named_model(target)
    if builder is None:
        named = not Path(target).suffix[1:].isalpha() and not {"/", ":"} & set(target)  # and no file or function
        meant = hint(target) if named else "known"
        raise UsageError(
            f"plans are for models of the zoo and Hugging Face configurations, not for {target}",
            where=target,
            fix="name a model (meshcast models) or a config.json" if meant.startswith("known") else meant,
        )
    return builder


@functools.lru_cache(maxsize=256)
def _shape(target: str, settings: tuple[tuple[str, str], ...], _stamp: Hashable) -> ModelShape:
    builder = builder_of(target)
    chosen: dict[str, Any] = {name: setting_value(text) for name, text in settings}
    mode = chosen.get("mode", builder.mode)
    if mode != "train":
        raise UsageError(
            f"{builder.name} is asked for in mode {mode}, and plans are searched for training steps",
            where="--set mode",
            fix="leave it out, or use compare for a few plans",
        )
    builder.settled(chosen)  # refused here: once, and not by every plan
    config, known = builder.configured(**chosen), builder.overrides("train")
    module = builder.family
    period = getattr(config, "global_every", 0) or 1
    dense = getattr(config, "dense_layers", 0) if getattr(config, "experts", 0) else 0
    seq = chosen.get("seq") or known.get("seq") or getattr(config, "positions", None)
    weights = module.weights(config)
    return ModelShape(
        name=builder.name,
        layers=config.layers if hasattr(module, "sections") else 0,
        first=-(-dense // period) * period,
        period=period,
        heads=getattr(config, "heads", 0),
        kv_heads=getattr(config, "kv_heads", 0) or 0,
        experts=getattr(config, "experts", 0),
        width=getattr(config, "dim", 0),
        vocab=getattr(config, "vocab", 0),
        seq=int(seq) if isinstance(seq, int) else 0,
        batch=chosen.get("batch"),
        parameters=num_parameters(weights),
        unit=FAMILIES[builder.module].unit,
        routed_flops=_routed_flops(config, weights["layers"]) * seq
        if getattr(config, "experts", 0) and isinstance(seq, int)
        else 0.0,
        decided=PLANNED.intersection(known),
    )


def _routed_flops(config: Any, layers: Mapping[str, Any]) -> float:
    """FLOPs of a token's products with one layer's weights, forward (2 a weight) and backward (4): of experts its own alone.

    `layers` are weights of all layers of the kind, one behind the other. Experts have room for `active x capacity_factor` slots a
    token at the least, rounded up, and compute on all of them.
    """
    own = config.active / config.experts * min(1.0, config.capacity_factor)
    count: float = sum(
        math.prod(weight.shape[1:]) * (own if "expert" in weight.axes else 1.0)
        for weight in layers.values()
        if len(weight.shape) > (3 if "expert" in weight.axes else 2)  # biases multiply nothing
    )
    return 6.0 * count
