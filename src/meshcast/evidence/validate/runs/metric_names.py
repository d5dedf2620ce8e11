"""How sources spell the figures that runs are published by: `tokens/s/GPU`, `tokens per second per device`, `MFU (%)`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Quantity = Literal["time", "rate", "flops", "mfu"]
KNOWN = (
    "step_time_s, step time ms, s/step, ms/step, steps/s; tokens/s, samples/s, images/s, sequences/s, also per GPU, chip or "
    "device; TFLOP/s/GPU, model TFLOP/s/GPU, aggregate PFLOP/s; MFU, MFU_%"
)

# One spelling for each word, so that the patterns below need one.
_SAME = (
    (r"[_()\[\],]", " "),
    (r"\bper\b", "/"),
    (r"\b(?:milliseconds?|msecs?)\b", "ms"),
    (r"\b(?:seconds?|secs?)\b", "s"),
    (r"\b(?:gpu|chip|tpu|device|accelerator)s?\b", "device"),
    (r"\b(?:iterations?|iters?|its?|steps?)\b", "step"),
    (r"\btera(?=flop)", "t"),
    (r"\bpeta(?=flop)", "p"),
    (r"\s*/\s*", "/"),
    (r"^\s*(?:(?:training|achieved|average|avg|mean|throughput)\b[: ]*)+|\s+$", ""),
    (r"\s+", " "),
)
_TIME = re.compile(r"(?:step ?time|time/step) (?P<unit>m?s)|(?P<each>m?s)/step|(?P<bare>m?s)")
_RATE = re.compile(
    r"(?P<what>token|tok|sample|example|image|img|sequence|seq|step)s?/(?:s|s(?P<share>/device)|(?P<first>device)/s)"
)
_FLOPS = re.compile(r"(?P<model>model )?(?P<unit>[tp])flops?(?:/s)?/device(?:/s)?")
_SUM = re.compile(r"(?:aggregate|total) (?P<model>model )?(?P<unit>[tp])flops?(?:/s)?")
_MFU = re.compile(r"(?:mfu|model flops? utili[sz]ation(?: mfu)?) ?(?:%|percent)?")
_LONG = {"tok": "token", "example": "sample", "img": "image", "seq": "sequence"}
_SECONDS = {"s": 1.0, "ms": 1e-3}
_FLOP_UNITS = {"t": 1e12, "p": 1e15}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricName:
    """A figure's name, understood.

    Attributes:
        unit: Seconds of the unit of a time, FLOP/s of that of a rate of FLOPs.
        counted: What a rate counts: token, sample, image, sequence or step.
        per_device: Whether it is each device's share.
        of_model: Whether it says that FLOPs are the model's, not the hardware's.
    """

    quantity: Quantity
    unit: float = 1.0
    counted: str = ""
    per_device: bool = False
    of_model: bool = False


def metric_named(text: str) -> MetricName | None:
    """What a name means, or None where no rule knows it; a time without its unit is none."""
    name = text.lower()
    for pattern, plain in _SAME:
        name = re.sub(pattern, plain, name)
    if time := _TIME.fullmatch(name):
        return MetricName(quantity="time", unit=_SECONDS[time["unit"] or time["each"] or time["bare"]])
    if rate := _RATE.fullmatch(name):
        counted = _LONG.get(rate["what"], rate["what"])
        return MetricName(quantity="rate", counted=counted, per_device=bool(rate["share"] or rate["first"]))
    for pattern_of, each in ((_FLOPS, True), (_SUM, False)):
        if flops := pattern_of.fullmatch(name):
            unit = _FLOP_UNITS[flops["unit"]]
            return MetricName(quantity="flops", unit=unit, per_device=each, of_model=bool(flops["model"]))
    return MetricName(quantity="mfu", per_device=True, of_model=True) if _MFU.fullmatch(name) else None
