"""Whether Inductor stores images channels last around convolutions; free of torch.

`GraphLowering.decide_layout_opt` (`torch/_inductor/graph.py`, alike in 2.11 and 2.13): in training not where a convolution has
groups of several channels, has a window and at most half as many results as channels, or where all are narrow; in inference
where that saves time by the factors that PyTorch's authors measured, weighted by FLOPs. Never where convolutions are few among
other calls, as in models that only cut images into patches with one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from meshcast.programs.pytorch.eager.libraries import convolution_told
from meshcast.programs.pytorch.recording.calls import Recording

_FEW = 300  # calls for each convolution, from which layouts are left alone
_NARROW = 64  # channels
_TIMES = {"groups": 1.358, "shrinks": 0.725, "narrow": 0.783, "other": 0.823}  # channels last over channels first


def channels_last_pays(recording: Recording) -> bool:
    """Whether a compiled step has its images channels last."""
    forward = [op for op in recording.ops if op.phase == "forward"]
    found = [convolution_told(op) for op in forward if op.name == "convolution"]
    if not found or len(forward) >= _FEW * len(found):
        return False
    kinds = [_kinds(told) for told in found]
    if not any(op.phase == "backward" for op in recording.ops):
        flops: list[int] = [math.prod(told["out"]) * math.prod(told["weight"][1:]) for told in found]
        taken = (n * _TIMES[next(iter(kind), "other")] for n, kind in zip(flops, kinds, strict=True))
        return bool(sum(taken) <= sum(flops))
    trouble = {each for kind in kinds for each in kind} & {"groups", "shrinks"}
    return not trouble and not all("narrow" in kind for kind in kinds)


def _kinds(told: Mapping[str, Any]) -> list[str]:
    """What is said of a convolution, the first that counts in inference first."""
    out, channels, *window = told["weight"]
    said = {
        "groups": told["groups"] > 1 and channels > 1,
        "narrow": max(out, channels) <= _NARROW,
        "shrinks": 2 * out <= channels and bool(window) and window[0] > 1,
    }
    return [name for name, holds in said.items() if holds]
