"""What a model's step gets done: its batch over its time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from meshcast.jobs.described.asked import Asked
from meshcast.results import Prediction, Throughput
from meshcast.zoo import FAMILIES, SERVE


def throughput_of(asked: Asked, prediction: Prediction) -> Throughput | None:
    """Tokens, images or samples a second; None where there is no time.

    A step reads `batch` samples, of sequences `batch x seq` tokens (an encoder-decoder's targets too), and of a decoding step one
    token of each request. Where a model serves, it is the tokens that are put out, over whole requests, as are the model's FLOPs.

    Args:
        asked: What the model is asked for.
        prediction: The prediction of its step.
    """
    step = prediction.step_time_s
    if not step:
        return None
    unit = FAMILIES[asked.builder.module].unit
    values = asked.values()
    # A program for one device that several run alike works on a batch of each device's own.
    copies = prediction.devices if prod(prediction.mesh.values()) == 1 else 1
    units, seconds, requests = copies * _units(asked.mode, unit, values), step, None
    flops = prediction.model_flops
    served = prediction.serving
    if served is not None and served.request_s and served.output_tokens:
        requests = copies * served.batch
        units, seconds, flops = requests * served.output_tokens, served.request_s, served.model_flops
    return Throughput(
        unit=unit,
        units=units,
        seconds=seconds,
        devices=prediction.devices,
        model_flops=flops,
        requests=requests,
    )


def _units(mode: str, unit: str, values: Mapping[str, Any]) -> int:
    batch = int(values["batch"])
    if unit != "tokens" or mode in ("decode", SERVE):
        return batch
    targets = values.get("target") or 0 if mode in ("train", "forward") else 0
    return batch * (int(values["seq"]) + int(targets))
