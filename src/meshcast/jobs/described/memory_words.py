"""What takes the memory of a model that does not fit, told in the words of plans."""

from __future__ import annotations

from dataclasses import replace

from meshcast.hardware import Device
from meshcast.jobs.described.asked import Asked
from meshcast.jobs.planned.memory_parts import with_memory_parts
from meshcast.options import Options
from meshcast.results import Prediction
from meshcast.zoo import Plan


def with_memory_words(prediction: Prediction, asked: Asked | None, options: Options, device: Device) -> Prediction:
    """What would let a model fit; one that trains without a plan, and a program of one's own, have no such words.

    Changes of the plan are named where none is tried (`jobs.levers.fitting`).

    Args:
        prediction: Of the model or the program, which may fit.
        asked: What the model is asked for; None where the target is a program.
        options: What it was asked with.
        device: What it does not fit into.
    """
    if prediction.feasible or asked is None or (asked.plan is None and asked.mode == "train"):
        return prediction
    plan = asked.plan
    if plan is None:
        plan = Plan() if asked.attending is None else replace(Plan(), attention=asked.attending.attention)
    return with_memory_parts(prediction, asked.builder, plan, options, device, named=not options.levers)
