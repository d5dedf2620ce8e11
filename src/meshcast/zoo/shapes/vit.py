"""Vision Transformers (Dosovitskiy 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require_divides
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class VitConfig:
    """The sizes of a model; a feed-forward width of zero is four times the model's."""

    layers: int
    dim: int
    heads: int
    patch: int = 16
    image: int = 224
    classes: int = 1000
    ffn: int = 0

    def __post_init__(self) -> None:
        require_divides(self, "heads", "dim")
        require_divides(self, "patch", "image")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.dim // self.heads,)

    @property
    def hidden(self) -> int:
        """The feed-forward width."""
        return self.ffn or 4 * self.dim


SHAPES = {
    "vit-tiny": Shape(
        config=VitConfig(layers=2, dim=64, heads=4, patch=8, image=32, classes=16),
        summary="Vision Transformer with two small layers",
    ),
    # Ti and S are Touvron 2021's (DeiT), g Zhai 2022's.
    "vit-ti16": Shape(config=VitConfig(layers=12, dim=192, heads=3), summary="ViT-Ti/16"),
    "vit-s16": Shape(config=VitConfig(layers=12, dim=384, heads=6), summary="ViT-S/16"),
    "vit-b16": Shape(config=VitConfig(layers=12, dim=768, heads=12), summary="ViT-B/16"),
    "vit-l16": Shape(config=VitConfig(layers=24, dim=1024, heads=16), summary="ViT-L/16"),
    "vit-h14": Shape(config=VitConfig(layers=32, dim=1280, heads=16, patch=14), summary="ViT-H/14"),
    "vit-g14": Shape(config=VitConfig(layers=40, dim=1408, heads=16, patch=14, ffn=6144), summary="ViT-g/14"),
}
