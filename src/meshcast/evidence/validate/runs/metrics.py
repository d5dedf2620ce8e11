"""The figures that runs are published by, as functions of the step time.

With t the step time, n devices, B sequences (or samples) a step of s tokens:

- `step_time_s`, `step time ms`: t, and `steps/s` 1 / t;
- `tokens/s` B s / t, `samples/s`, `images/s`, `sequences/s` B / t; with `/GPU`, `/chip` or `/device` behind them, per device;
- `model TFLOP/s/GPU`, `TFLOP/s/chip`: B s F / (t n) with F model FLOPs a token, in 1e12; `aggregate` ones without n;
- `MFU_%`: 100 B s F / (t n P) with P the device's dense bf16 peak. A value of at most 1 is the fraction, without the 100.

Other spellings of them are in `metric_names`.

F = 6 N + a L h s: N the parameters that a product sees (not an embedding that is only looked up, not positions, of
experts the active ones), L layers, h = heads x width of a head. Without more words a = 12, all pairs of positions (Chowdhery
2022, appendix B; the same terms as 72 B s l h^2 (1 + s/6h + V/12lh) in Korthikanti 2022); where a source counts the
visible pairs alone, as MaxText does, a = 6. Megatron's `TFLOP/s/GPU` of 2021 counts hardware FLOPs: with full
recomputation a second forward pass, 4/3 of F (Narayanan 2021, section 5.1).
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.evidence.validate.runs.metric_names import KNOWN, metric_named
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.evidence.validate.runs.shapes import RunModel
from meshcast.evidence.validate.runs.target import RunTarget

_ALL_PAIRS, _VISIBLE_PAIRS = 12, 6
_RECOMPUTED = 4 / 3
# Parameters that no product sees.
_LOOKED_UP = ("positions", "embedding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure that is a constant over the step time, or the step time itself in a unit of its own.

    Attributes:
        name: The row's.
        definition: What was computed, for people.
        constant: The figure times the step time; None where the figure is the step time.
        unit: Seconds of the figure's unit where it is the step time.
        assumption: What was taken for granted about it; empty where nothing was.
    """

    name: str
    definition: str
    constant: float | None = None
    unit: float = 1.0
    assumption: str = ""

    def of(self, seconds: float) -> float:
        """The figure at a step time."""
        return seconds / self.unit if self.constant is None else self.constant / seconds

    def seconds(self, value: float) -> float:
        """The step time that a figure means."""
        return value * self.unit if self.constant is None else self.constant / value


def metric_of(row: RunRow, target: RunTarget) -> Metric:
    """The row's figure for what it describes.

    Raises:
        UnsupportedError: No definition of it is known, or it is not defined for the model.
    """
    name = metric_named(row.metric)
    if name is None:
        raise UnsupportedError(f"no definition of the metric {row.metric!r}; known are {KNOWN}", where="metric")
    if name.quantity == "time":
        return Metric(name=row.metric, definition="the time of a step", unit=name.unit)
    each = target.devices if name.per_device else 1
    if name.quantity == "rate":
        amount = 1 if name.counted == "step" else target.batch * (_tokens(target) if name.counted == "token" else 1)
        return Metric(name=row.metric, definition=f"{name.counted}s of a step over its time", constant=amount / each)
    flops, said = _counted_flops(row, target, of_model=name.of_model)
    share = flops * target.batch * _tokens(target) / each
    if name.quantity == "flops":
        return Metric(name=row.metric, definition=f"{said}, in {name.unit:.0e}", constant=share / name.unit)
    assert target.on is not None
    peak = target.on.device.matrix_peak("bf16")
    fraction = row.value is not None and row.value <= 1
    return Metric(
        name=row.metric,
        definition=f"{said}, over {peak:.4g}, {'as a fraction' if fraction else 'in percent'}",
        constant=(1 if fraction else 100) * share / peak,
        assumption="an MFU of at most 1 is a fraction, not percent" if fraction else "",
    )


def _counted_flops(row: RunRow, target: RunTarget, *, of_model: bool) -> tuple[float, str]:
    """FLOPs of a token as the source counts them, and in words how."""
    assert target.model is not None
    visible = re.search(r"causal \(halved\)|causal.*halv", row.words) is not None
    factor = _VISIBLE_PAIRS if visible else _ALL_PAIRS
    flops = model_flops(target.model, _tokens(target), factor)
    said = f"model FLOPs 6 N + {factor} L h s"
    if not of_model and target.stack and target.stack.name == "megatron-2022" and target.plan.get("remat") == "full":
        return flops * _RECOMPUTED, f"hardware FLOPs, 4/3 of {said}"
    return flops, said


def _tokens(target: RunTarget) -> int:
    if target.seq is None:
        raise UnsupportedError("the model reads no tokens", where=target.model.name if target.model else None)
    return target.seq


def model_flops(model: RunModel, seq: int, attention: int = _ALL_PAIRS) -> float:
    """FLOPs of training on one token of a sequence of `seq`: `6 N + attention L h s`."""
    config = model.config
    width: int = config.heads * getattr(config, "head_dim", config.dim // config.heads)
    layers: int = config.layers
    return 6 * product_parameters(model) + attention * layers * width * seq


def product_parameters(model: RunModel) -> float:
    """Parameters that a product sees; of experts the active ones."""
    config = model.config
    tied = getattr(config, "tied", True)
    experts, active = getattr(config, "experts", 0), getattr(config, "active", 0)
    module = importlib.import_module(f"meshcast.zoo.{model.builder.module}")
    total = 0.0
    for name, shape in _leaves(module.weights(config)):
        if name in _LOOKED_UP and not (name == "embedding" and tied):
            continue
        routed = experts and len(shape) == 4 and shape[1] == experts  # layers, experts, inputs, outputs
        total += math.prod(shape) * (active / experts if routed else 1.0)
    return total


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from _leaves(value, name)
    else:
        yield name, tree.shape
