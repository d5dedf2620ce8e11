"""ConvNeXts (Liu 2022): convolutions of 7 x 7 over single channels, and two layers over channels behind each."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvnextConfig:
    """Blocks and channels of every stage; each halves the image."""

    blocks: tuple[int, ...]
    widths: tuple[int, ...]
    image: int = 224
    classes: int = 1000

    def __post_init__(self) -> None:
        require(
            len(self.blocks) == len(self.widths),
            f"blocks={self.blocks} and widths={self.widths} are not of as many stages",
            "give one number a stage",
        )
        step = 4 * 2 ** (len(self.widths) - 1)
        require(self.image % step == 0, f"image={self.image} is no multiple of {step}, the step of the last stage")


_SIZES = {
    "tiny": ((3, 3, 9, 3), (96, 192, 384, 768)),
    "small": ((3, 3, 27, 3), (96, 192, 384, 768)),
    "base": ((3, 3, 27, 3), (128, 256, 512, 1024)),
    "large": ((3, 3, 27, 3), (192, 384, 768, 1536)),
    "xlarge": ((3, 3, 27, 3), (256, 512, 1024, 2048)),
}
SHAPES = {
    "convnext-two-stages": Shape(
        config=ConvnextConfig(blocks=(1, 1), widths=(16, 32), image=32, classes=16),
        summary="ConvNeXt with two small stages",
    ),
    **{
        f"convnext-{name}": Shape(
            config=ConvnextConfig(blocks=blocks, widths=widths), summary=f"ConvNeXt-{name.capitalize()}"
        )
        for name, (blocks, widths) in _SIZES.items()
    },
}
