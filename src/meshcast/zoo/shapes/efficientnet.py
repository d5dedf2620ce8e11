"""EfficientNets (Tan and Le 2019): seven stages of inverted bottlenecks, scaled in width, depth and image together.

EfficientNetV2 (Tan and Le 2021) has six, the first three of which widen and filter in one convolution and squeeze nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape

# Of each stage of B0 (table 1): how much wider a block is inside, its filter, stride, channels and blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
STEM, HEAD = 32, 1280
# The same of V2-S (table 4 of the second paper); the first `_FUSED` stages have fused blocks.
_SECOND = (
    (1, 3, 1, 24, 2),
    (4, 3, 2, 48, 4),
    (4, 3, 2, 64, 4),
    (4, 3, 2, 128, 6),
    (6, 3, 1, 160, 9),
    (6, 3, 2, 256, 15),
)
_SECOND_STEM, _FUSED = 24, 3
_STEP = 8  # channels are multiples of it, and not more than a tenth below what the scale asks for


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficientnetConfig:
    """B0's stages with `width` times the channels and `depth` times the blocks.

    A squeezing layer has a quarter of the channels that come into the block; with `wide_squeeze` of those inside of it. The
    stages are those of V2-S where it is of the `second` version.
    """

    width: float = 1.0
    depth: float = 1.0
    image: int = 224
    classes: int = 1000
    wide_squeeze: bool = False
    second: bool = False

    def __post_init__(self) -> None:
        require(
            self.width > 0 and self.depth > 0, f"width={self.width} and depth={self.depth} scale nothing", "e.g. 1.4"
        )

    @property
    def stages(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """Of each stage: how much wider a block is inside, its filter, stride, channels and blocks, unscaled."""
        return _SECOND if self.second else STAGES

    @property
    def stem(self) -> int:
        """Channels behind the first convolution."""
        return _SECOND_STEM if self.second else self.channels(STEM)

    def fused(self, stage: int) -> bool:
        """Whether a stage's blocks widen and filter at once."""
        return self.second and stage < _FUSED

    def channels(self, plain: int) -> int:
        """Channels where B0 has `plain`."""
        wanted = plain * self.width
        found = max(_STEP, int(wanted + _STEP / 2) // _STEP * _STEP)
        return found if found >= 0.9 * wanted else found + _STEP

    def blocks(self, plain: int) -> int:
        """Blocks of a stage that has `plain` in B0."""
        return math.ceil(plain * self.depth)


_SCALES = {  # width, depth, image: the coefficients of the authors' efficientnet_builder.py
    "b0": (1.0, 1.0, 224), "b1": (1.0, 1.1, 240), "b2": (1.1, 1.2, 260), "b3": (1.2, 1.4, 300), "b4": (1.4, 1.8, 380),
    "b5": (1.6, 2.2, 456), "b6": (1.8, 2.6, 528), "b7": (2.0, 3.1, 600),
}  # fmt: skip
SHAPES = {
    "efficientnet-tiny": Shape(
        config=EfficientnetConfig(width=0.25, depth=0.5, image=32, classes=16), summary="EfficientNet, small"
    ),
    **{
        f"efficientnet-{name}": Shape(
            config=EfficientnetConfig(width=width, depth=depth, image=image), summary=f"EfficientNet-{name.upper()}"
        )
        for name, (width, depth, image) in _SCALES.items()
    },
    "efficientnetv2-s": Shape(config=EfficientnetConfig(image=384, second=True), summary="EfficientNetV2-S"),
    **{
        f"efficientnet-widese-{name}": Shape(
            config=EfficientnetConfig(
                width=_SCALES[name][0], depth=_SCALES[name][1], image=_SCALES[name][2], wide_squeeze=True
            ),
            summary=f"EfficientNet-{name.upper()} with wide squeezing layers (NVIDIA's examples)",
        )
        for name in ("b0", "b4")
    },
}
