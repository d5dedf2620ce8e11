"""ResNets (He 2016, stride on the 3x3 as in v1.5), wide ones (Zagoruyko 2016), ResNeXts (Xie 2017), squeezing ones (Hu 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ResnetConfig:
    """Blocks per stage, and whether a block is a bottleneck (1x1, 3x3, 1x1) or basic (3x3, 3x3).

    A bottleneck's 3x3 has `groups` of `group_width` channels in the first stage, twice as many in each further one. With
    `squeeze` a block's channels are weighed by what two small layers, `squeeze` times narrower in between, make of their means.
    """

    blocks: tuple[int, ...]
    bottleneck: bool
    width: int = 64
    groups: int = 1
    group_width: int = 64
    squeeze: int = 0
    image: int = 224
    classes: int = 1000

    def __post_init__(self) -> None:
        require(
            bool(self.blocks) and all(isinstance(count, int) and count > 0 for count in self.blocks),
            f"blocks={self.blocks} is not a count of blocks for every stage",
            "e.g. blocks=3,4,6,3",
        )
        require(
            self.groups > 0 and self.group_width > 0 and self.inner(0) % self.groups == 0 and self.inner(0) > 0,
            f"groups={self.groups} of group_width={self.group_width} do not make up the channels of a block of {self.width}",
            "e.g. groups=32, group_width=4",
        )
        require(
            self.bottleneck or (self.groups == 1 and self.group_width == _USUAL),
            "basic blocks have no groups",
            "set bottleneck=true, or leave groups and group_width out",
        )
        require(
            self.squeeze >= 0 and (not self.squeeze or self.outputs(0) % self.squeeze == 0),
            f"squeeze={self.squeeze} does not divide the {self.outputs(0)} channels of the first stage",
            "e.g. squeeze=16, or 0 for none",
        )

    def inner(self, stage: int) -> int:
        """Channels of the 3x3 convolutions of a stage."""
        return (self.width << stage) * self.group_width * self.groups // _USUAL

    def outputs(self, stage: int) -> int:
        """Channels that a stage's blocks give."""
        return (self.width << stage) * (4 if self.bottleneck else 1)


_USUAL = 64  # channels of a plain block in the first stage, which `group_width` and `groups` are told by
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
    **{
        f"{'se-' if squeeze else ''}resnext{depth}-{groups}x{width}d": Shape(
            config=ResnetConfig(
                blocks=_DEEP[depth], bottleneck=True, groups=groups, group_width=width, squeeze=squeeze
            ),
            summary=f"{'SE-' if squeeze else ''}ResNeXt-{depth}, {groups} groups of {width}",
        )
        for depth, groups, width, squeeze in (
            (50, 32, 4, 0),
            (101, 32, 4, 0),
            (101, 32, 8, 0),
            (101, 64, 4, 0),
            (50, 32, 4, 16),
            (101, 32, 4, 16),
        )
    },
    **{
        f"wide-resnet{depth}-2": Shape(
            config=ResnetConfig(blocks=_DEEP[depth], bottleneck=True, group_width=2 * _USUAL),
            summary=f"Wide ResNet-{depth}-2",
        )
        for depth in (50, 101)
    },
}
