"""U-Nets over volumes (Çiçek 2016; Isensee 2021), as MLPerf (1.0 to 3.1) trains one on scans of kidneys."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeConfig:
    """Channels of every resolution, each half of the one before; `image` is the side of a cube that is cut out of a scan.

    MLPerf's: 32 channels of 128^3 voxels, twice as many at each coarser resolution, 320 at the last
    (`retired_benchmarks/unet3d/pytorch/model/unet3d.py` of mlcommons/training).
    """

    widths: tuple[int, ...]
    image: int = 128
    channels: int = 1
    classes: int = 3

    def __post_init__(self) -> None:
        require(
            len(self.widths) > 1, f"widths={self.widths} has no coarser resolution", "e.g. widths=32,64,128,256,320"
        )
        step = 2 ** (len(self.widths) - 1)
        require(
            self.image % step == 0, f"image={self.image} is no multiple of {step}, the step of the coarsest resolution"
        )


SHAPES = {
    "unet3d-tiny": Shape(
        config=VolumeConfig(widths=(4, 8, 8), image=16), summary="U-Net over volumes with three small resolutions"
    ),
    "unet3d": Shape(
        config=VolumeConfig(widths=(32, 64, 128, 256, 320, 320)),
        summary="U-Net over volumes of 128^3 (MLPerf 1.0 to 3.1)",
    ),
}
