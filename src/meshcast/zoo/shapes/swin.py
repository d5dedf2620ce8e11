"""Swin Transformers (Liu 2021): attention inside of windows, every other layer's shifted, and an image halved three times."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinConfig:
    """Blocks and heads of every stage; the first is `dim` wide, each next one twice that, heads are 32 wide."""

    blocks: tuple[int, ...]
    dim: int
    heads: tuple[int, ...]
    window: int = 7
    patch: int = 4
    image: int = 224
    classes: int = 1000

    def __post_init__(self) -> None:
        require(
            len(self.blocks) == len(self.heads),
            f"blocks={self.blocks} and heads={self.heads} are not of as many stages",
            "give one number a stage",
        )
        step = self.patch * 2 ** (len(self.blocks) - 1) * self.window
        require(self.image % step == 0, f"image={self.image} is no multiple of {step}: windows of the last stage")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.dim // self.heads[0],)


_SECOND = {
    "tiny": ((2, 2, 6, 2), 96, (3, 6, 12, 24)),
    "small": ((2, 2, 18, 2), 96, (3, 6, 12, 24)),
    "base": ((2, 2, 18, 2), 128, (4, 8, 16, 32)),
}
SHAPES = {
    "swin-two-stages": Shape(
        config=SwinConfig(blocks=(2, 2), dim=32, heads=(2, 4), window=4, image=32, classes=16),
        summary="Swin Transformer with two small stages",
    ),
    "swin-tiny": Shape(config=SwinConfig(blocks=(2, 2, 6, 2), dim=96, heads=(3, 6, 12, 24)), summary="Swin-T"),
    "swin-small": Shape(config=SwinConfig(blocks=(2, 2, 18, 2), dim=96, heads=(3, 6, 12, 24)), summary="Swin-S"),
    "swin-base": Shape(config=SwinConfig(blocks=(2, 2, 18, 2), dim=128, heads=(4, 8, 16, 32)), summary="Swin-B"),
    # The second version (Liu 2022) with windows of 8 of pictures of 256; its scores are cosines, and their biases come from two
    # small layers, which cost next to nothing and are left out.
    **{
        f"swinv2-{name}": Shape(
            config=SwinConfig(blocks=blocks, dim=dim, heads=heads, window=8, image=256),
            summary=f"Swin V2 {name.capitalize()}, windows of 8",
        )
        for name, (blocks, dim, heads) in _SECOND.items()
    },
    "swin-large": Shape(config=SwinConfig(blocks=(2, 2, 18, 2), dim=192, heads=(6, 12, 24, 48)), summary="Swin-L"),
}
