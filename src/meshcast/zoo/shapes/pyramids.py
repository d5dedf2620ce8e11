"""Detectors on a pyramid of maps (Lin 2017): Mask R-CNN (He 2017) and RetinaNet, as MLPerf trained them."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.resnet import SHAPES as RESNETS
from meshcast.zoo.shapes.resnet import ResnetConfig
from meshcast.zoo.shapes.shape import Shape

_STEP = 32  # pixels that images are filled up to a multiple of


@dataclass(frozen=True, slots=True, kw_only=True)
class PyramidConfig:
    """A detector on a ResNet's stages.

    Attributes:
        masks: Mask R-CNN: regions are proposed, classified and masked; if not, every pixel of every map has boxes (RetinaNet).
        height: Pixels of an image, as it is filled up to. `image`: its width; most of COCO's are 640 x 480, made 800 high and
            filled up to the widest of their batch.
        anchors: Boxes at each pixel of each map.
        regions: Of an image, those that are classified in training; a quarter of them has a mask.
        proposed: Of an image, the boxes of each map that compete for being a region.
    """

    blocks: tuple[int, ...]
    masks: bool
    width: int = 64
    groups: int = 1
    group_width: int = 64
    channels: int = 256
    image: int = 1216
    height: int = 800
    classes: int = 81
    anchors: int = 3
    regions: int = 512
    proposed: int = 2000

    def __post_init__(self) -> None:
        require(len(self.blocks) == 4, f"blocks={self.blocks} are not those of four stages", "e.g. blocks=3,4,6,3")
        for side in ("image", "height"):
            require(
                getattr(self, side) % _STEP == 0,
                f"{side}={getattr(self, side)} is no multiple of {_STEP}, of which maps are made",
                "fill images up",
            )
        require(self.regions % 4 == 0, f"regions={self.regions} has no quarter that masks are made of", "regions=512")

    @property
    def trunk(self) -> ResnetConfig:
        """The ResNet whose stages these are."""
        return ResnetConfig(
            blocks=self.blocks, bottleneck=True, width=self.width, groups=self.groups, group_width=self.group_width,
            image=self.image,
        )  # fmt: skip

    @property
    def strides(self) -> tuple[int, ...]:
        """Pixels of an image for one of each map: of the second to the last stage and coarser ones."""
        return (4, 8, 16, 32, 64) if self.masks else (8, 16, 32, 64, 128)

    @property
    def maps(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each map."""
        return tuple((-(-self.height // stride), -(-self.image // stride)) for stride in self.strides)

    @property
    def boxes(self) -> int:
        """Boxes of an image over all maps."""
        return self.anchors * sum(rows * columns for rows, columns in self.maps)


_RESNEXT = RESNETS["resnext50-32x4d"].config
SHAPES = {
    "mask-rcnn-tiny": Shape(
        config=PyramidConfig(
            blocks=(1, 1, 1, 1), masks=True, width=8, group_width=64, channels=16, image=128, height=128, classes=4,
            regions=8, proposed=16,
        ),
        summary="Mask R-CNN on a small ResNet",
    ),
    "mask-rcnn": Shape(
        config=PyramidConfig(blocks=RESNETS["resnet50"].config.blocks, masks=True),
        summary="Mask R-CNN on ResNet-50 (MLPerf 0.5 to 2.1)",
    ),
    "retinanet": Shape(
        config=PyramidConfig(
            blocks=_RESNEXT.blocks, masks=False, groups=_RESNEXT.groups, group_width=_RESNEXT.group_width, image=800, height=800,
            classes=264, anchors=9,
        ),
        summary="RetinaNet on ResNeXt-50, 264 classes of OpenImages (MLPerf 2.0 to 5.0)",
    ),
}  # fmt: skip
