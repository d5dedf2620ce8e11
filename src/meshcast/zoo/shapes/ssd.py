"""Detectors of one pass over 300 x 300 images (Liu 2016) on a ResNet's first three stages."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.resnet import SHAPES as RESNETS
from meshcast.zoo.shapes.resnet import ResnetConfig
from meshcast.zoo.shapes.shape import Shape

# Of each further map: channels of the 1x1, channels of the 3x3, its stride, and whether it is padded.
FURTHER = ((256, 512, 2, True), (256, 512, 2, True), (128, 256, 2, True), (128, 256, 1, False), (128, 256, 1, False))
BOXES = (4, 6, 6, 6, 4, 4)
"""Default boxes at each pixel of each map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SsdConfig:
    """A detector on the stages of a ResNet but its last, the last of which leaves the image as large as it is.

    At 300 x 300 the maps are 38, 19, 10, 5, 3 and 1 pixels wide: 8,732 boxes.
    """

    blocks: tuple[int, ...]
    bottleneck: bool
    width: int = 64
    image: int = 300
    classes: int = 81

    def __post_init__(self) -> None:
        require(
            min(self.maps) > 0,
            f"image={self.image} leaves no pixel of the last map, which is made of {self.maps[-3]} x {self.maps[-3]}",
            "300 is usual, 257 the least",
        )

    @property
    def maps(self) -> tuple[int, ...]:
        """Pixels along a side of each map that boxes are found on."""
        size = self.image
        for _ in range(3):  # the stem, its pool and the second stage
            size = -(-size // 2)
        sizes = [size]
        for _, _, stride, padded in FURTHER:
            size = -(-size // stride) if padded else size - 2
            sizes.append(size)
        return tuple(sizes)

    @property
    def trunk(self) -> ResnetConfig:
        """The ResNet whose stages these are."""
        return ResnetConfig(blocks=self.blocks, bottleneck=self.bottleneck, width=self.width, image=self.image)


def _on(name: str) -> SsdConfig:
    ours: ResnetConfig = RESNETS[name].config
    return SsdConfig(blocks=ours.blocks[:3], bottleneck=ours.bottleneck)


SHAPES = {
    "ssd-tiny": Shape(
        config=SsdConfig(blocks=(1, 1, 1), bottleneck=False, width=8, classes=4), summary="SSD300 on a small ResNet"
    ),
    "ssd300-resnet50": Shape(config=_on("resnet50"), summary="SSD300 on ResNet-50 (NVIDIA's examples)"),
    "ssd300-resnet34": Shape(config=_on("resnet34"), summary="SSD300 on ResNet-34 (MLPerf 0.5 to 1.1)"),
}
