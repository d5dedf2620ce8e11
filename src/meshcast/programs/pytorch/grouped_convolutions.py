"""Convolutions whose channels are in groups, as cuDNN runs them; free of torch.

cuDNN 9's implicit products take several groups at once where these are narrow: a tile of 64 channels holds 64 / w groups of w
(`_g2_` to `_g16_` in the names of its kernels, in ResNeXt's and RegNet's groups of 4 to 32 channels). Wider groups are run one
after the other, each as a convolution of its own (`_g1_`) between copies of its channels alone: SqueezeBERT's four groups of
192 are twelve kernels instead of three (240 copies each way and 240 products for its 60 such convolutions).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from meshcast.programs.pytorch.recorded import View

TOGETHER = 32  # channels of a group at most that a tile of 64 holds another one beside


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
