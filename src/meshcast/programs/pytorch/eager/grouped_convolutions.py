"""Convolutions whose channels are in groups, as cuDNN runs them; free of torch.

cuDNN 9's implicit products take several groups at once where these are narrow: a tile of 64 channels holds 64 / w groups of w
(`_g2_` to `_g16_` in the names of its kernels, in ResNeXt's and RegNet's groups of 4 to 32 channels). Wider groups are run one
after the other, each as a convolution of its own (`_g1_`) between copies of its channels alone: SqueezeBERT's four groups of
192 are twelve kernels instead of three (240 copies each way and 240 products for its 60 such convolutions).

Narrow groups whose width is no power of two are padded to the next one on the way (RegNet-Y 3.2GF's 24 channels to 32): every
operand is written into memory that was filled with zeros before (186 memsets for 63 passes), by copies with more to write
(`nchwToNhwcKernel<.., true, true>`), and of weights by one that computes every place (`tensorTransformGeneric`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshcast.programs.pytorch.eager.code_shapes import TURN_START
from meshcast.programs.pytorch.eager.contiguous_operands import dense_view
from meshcast.programs.pytorch.launches.launch import Arithmetic, Launch, pointwise
from meshcast.programs.pytorch.recording.calls import View

TOGETHER = 32  # channels of a group at most that a tile of 64 holds another one beside
PADDED_TURNED = (
    0.39  # of the rate of streaming code, copies of images that pad (RegNet-Y 3.2GF: 122 of them, 26.7 us each)
)
WEIGHTS_TURNED = 8e-6  # seconds of one of weights beside its launch (9.6 us each, 61 of them)


def group_width(told: Mapping[str, Any]) -> int:
    """Channels of a group, of the image or of the result, whichever has more."""
    return max(int(told["image"][1]), int(told["out"][1])) // int(told["groups"])


def groups_follow(told: Mapping[str, Any]) -> bool:
    """Whether groups follow each other."""
    return int(told["groups"]) > 1 and group_width(told) > TOGETHER


def of_one_group(told: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the convolution of one group."""
    groups = int(told["groups"])

    def part(shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[0], shape[1] // groups, *shape[2:]

    weight = tuple(told["weight"])
    return {
        **told,
        "image": part(told["image"]),
        "out": part(told["out"]),
        "weight": (weight[0] // groups, *weight[1:]),
        "groups": 1,
    }


def channels_of_one_group(view: View, groups: int, *, weight: bool = False) -> View:
    """A group's part of images, which lie side by side in it, or of the weights."""
    shape = list(view.shape)
    shape[0 if weight else 1] //= groups
    return View(view.storage, tuple(shape), tuple(math.prod(shape[d + 1 :]) for d in range(len(shape))), view.dtype)


def padded_width(told: Mapping[str, Any]) -> int:
    """Channels of a group as narrow groups are stored: the next power of two; 0 where that is what they have."""
    groups, width = int(told["groups"]), group_width(told)
    wide = 1 << (width - 1).bit_length()
    half = told["dtype"] in ("bfloat16", "float16")
    return wide if half and groups > 1 and 1 < width <= TOGETHER and wide != width else 0


def padded_copy(view: View, told: Mapping[str, Any], wide: int, *, weight: bool) -> Iterator[Launch]:
    """Zeros, and the copy of images or weights between channels first and last with their groups padded."""
    if weight:
        yield pointwise("memset", (), (view,), ())
        made = pointwise("tensorTransformGeneric", (view,), (view,), ())
        yield replace(made, extra=WEIGHTS_TURNED)
        return
    shape = (view.shape[0], int(told["groups"]) * wide, *view.shape[2:])
    padded = dense_view(view, shape)
    yield pointwise("memset", (), (padded,), ())
    yield Launch(
        name="nchwToNhwc", form="pointwise", takes=(view,), gives=(padded,), stages=(Arithmetic(),), share=PADDED_TURNED,
        extra=TURN_START,
    )  # fmt: skip
