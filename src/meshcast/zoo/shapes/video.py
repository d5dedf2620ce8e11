"""Transformers over videos (Wan 2025, arXiv 2503.20314): self-attention over all patches, cross-attention to a text."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require_divides
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoConfig:
    """The sizes of a model over `tokens` patches of a video, each of `numbers` numbers.

    Wan's autoencoder makes (1 + (frames - 1) / 4) x height / 8 x width / 8 latents of 16 channels, and a patch is 1 x 2 x 2 of
    them: 81 frames of 480 x 832 are 21 x 30 x 52 = 32,760 patches, of 720 x 1280 75,600.
    """

    layers: int
    dim: int
    ffn: int
    heads: int
    tokens: int = 32760
    numbers: int = 64
    words: int = 512
    context: int = 4096
    frequencies: int = 256

    def __post_init__(self) -> None:
        require_divides(self, "heads", "dim")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.dim // self.heads,)


# PixArt-alpha (Chen 2023, arXiv 2310.00426) has the same layers over one picture of 512 x 512: 32 x 32 patches of 2 x 2 latents
# of four channels, texts of 120 tokens; neither queries and keys nor what reads the text are normalised there.
# config.json of Wan-AI/Wan2.1-T2V-1.3B and -14B.
SHAPES = {
    "wan-tiny": Shape(
        config=VideoConfig(
            layers=2, dim=64, ffn=128, heads=4, tokens=32, numbers=8, words=16, context=32, frequencies=16
        ),
        summary="Transformer over videos with two small layers",
    ),
    "pixart-alpha": Shape(
        config=VideoConfig(layers=28, dim=1152, ffn=4608, heads=16, tokens=1024, numbers=16, words=120),
        summary="PixArt-alpha XL/2 on pictures of 512x512",
    ),
    "wan2.1-1.3b": Shape(
        config=VideoConfig(layers=30, dim=1536, ffn=8960, heads=12),
        summary="Wan 2.1 1.3B on 81 frames of 480x832",
    ),
    "wan2.1-14b": Shape(
        config=VideoConfig(layers=40, dim=5120, ffn=13824, heads=40),
        summary="Wan 2.1 14B on 81 frames of 480x832",
    ),
}
