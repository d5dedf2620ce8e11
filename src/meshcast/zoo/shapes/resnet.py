"""ResNets (He 2016, stride on the 3x3 as in v1.5)."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ResnetConfig:
    """Blocks per stage, and whether a block is a bottleneck (1x1, 3x3, 1x1) or basic (3x3, 3x3)."""

    blocks: tuple[int, ...]
    bottleneck: bool
    width: int = 64
    image: int = 224
    classes: int = 1000

    def __post_init__(self) -> None:
        require(
            bool(self.blocks) and all(isinstance(count, int) and count > 0 for count in self.blocks),
            f"blocks={self.blocks} is not a count of blocks for every stage",
            "e.g. blocks=3,4,6,3",
        )


_DEEP = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}

SHAPES = {
    "resnet-tiny": Shape(
        config=ResnetConfig(blocks=(1, 1), bottleneck=True, width=8, image=32, classes=16),
        summary="ResNet with two small bottlenecks",
    ),
    "resnet18": Shape(config=ResnetConfig(blocks=(2, 2, 2, 2), bottleneck=False), summary="ResNet-18"),
    "resnet34": Shape(config=ResnetConfig(blocks=(3, 4, 6, 3), bottleneck=False), summary="ResNet-34"),
    **{
        f"resnet{depth}": Shape(config=ResnetConfig(blocks=blocks, bottleneck=True), summary=f"ResNet-{depth} v1.5")
        for depth, blocks in _DEEP.items()
    },
}
