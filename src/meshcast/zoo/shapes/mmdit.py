"""Transformers over images and their texts together (Esser 2024): Stable Diffusion 3 and FLUX.1."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require_divides
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class MmditConfig:
    """The sizes of a model over latents of `image` by `image` by `channels`, an eighth of the picture's sides.

    Attributes:
        joint: Layers in which picture and text have weights of their own and attend together.
        single: Layers behind them in which both go through the same weights, attention beside the feed-forward half.
        context: Width of a text's tokens, `words` of them.
        pooled: Width of the vector that stands for the whole text.
        guided: Whether the scale of guidance is embedded (a distilled model's).
    """

    joint: int
    single: int
    dim: int
    heads: int
    patch: int = 2
    image: int = 128
    channels: int = 16
    words: int = 512
    context: int = 4096
    pooled: int = 768
    frequencies: int = 256
    guided: bool = False

    def __post_init__(self) -> None:
        require_divides(self, "heads", "dim")
        require_divides(self, "patch", "image")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.dim // self.heads,)

    @property
    def patches(self) -> int:
        """Tokens of a picture."""
        return (self.image // self.patch) ** 2

    @property
    def numbers(self) -> int:
        """What a patch is made of."""
        return self.patch * self.patch * self.channels


# transformer/config.json of black-forest-labs/FLUX.1-schnell and -dev, and of stabilityai/stable-diffusion-3-medium-diffusers.
SHAPES = {
    "mmdit-tiny": Shape(
        config=MmditConfig(
            joint=1, single=2, dim=64, heads=4, image=8, channels=4, words=16, context=32, pooled=16, frequencies=16
        ),
        summary="Transformer over pictures and texts with three small layers",
    ),
    "flux.1-schnell": Shape(
        config=MmditConfig(joint=19, single=38, dim=3072, heads=24, words=256),
        summary="FLUX.1 schnell on latents of 128x128, texts of 256 tokens (MLPerf 5.1's, on latents of 32x32)",
    ),
    "flux.1-dev": Shape(
        config=MmditConfig(joint=19, single=38, dim=3072, heads=24, guided=True),
        summary="FLUX.1 dev on latents of 128x128, texts of 512 tokens",
    ),
    "sd3-medium": Shape(
        config=MmditConfig(joint=24, single=0, dim=1536, heads=24, words=333, pooled=2048),
        summary="Stable Diffusion 3 medium on latents of 128x128",
    ),
}
