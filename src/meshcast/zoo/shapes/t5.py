"""T5 (Raffel 2020): sizes of the published models, versions 1.0 and 1.1."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Config:
    """The sizes of an encoder-decoder.

    Attributes:
        layers: Layers of the encoder; the decoder has `decoder_layers`, as many where that is zero.
        gated: Gated GELU instead of ReLU, and an output projection of its own (version 1.1).
        buckets: Distances that the relative positions tell apart.
    """

    layers: int
    dim: int
    heads: int
    ffn: int
    head_dim: int = 64
    decoder_layers: int = 0
    vocab: int = 32128
    gated: bool = False
    tied: bool = True
    buckets: int = 32

    def __post_init__(self) -> None:
        require(self.buckets >= 4 and self.buckets % 4 == 0, f"buckets={self.buckets} is no multiple of four")


def _t5(layers: int, dim: int, heads: int, ffn: int, head_dim: int = 64) -> T5Config:
    return T5Config(layers=layers, dim=dim, heads=heads, ffn=ffn, head_dim=head_dim)


def _later(layers: int, dim: int, heads: int, ffn: int, vocab: int = 32128) -> T5Config:
    """Version 1.1 and mT5: gated GELU, an output projection of its own (t5x/examples/t5/t5_1_1 of google-research/t5x)."""
    return T5Config(layers=layers, dim=dim, heads=heads, ffn=ffn, vocab=vocab, gated=True, tied=False)


_MANY_LANGUAGES = 250112  # words of mT5 (Xue 2021)
# Layers of a side, width, heads, feed-forward width; heads are 64 wide.
_LATER = {
    "small": (8, 512, 6, 1024), "base": (12, 768, 12, 2048), "large": (24, 1024, 16, 2816), "xl": (24, 2048, 32, 5120),
    "xxl": (24, 4096, 64, 10240),
}  # fmt: skip

SHAPES = {
    "t5-tiny": Shape(
        config=T5Config(layers=2, dim=64, heads=4, ffn=128, head_dim=16, vocab=512), summary="T5 with two small layers"
    ),
    "t5-small": Shape(config=_t5(6, 512, 8, 2048), summary="T5 small"),
    "t5-base": Shape(config=_t5(12, 768, 12, 3072), summary="T5 base"),
    "t5-large": Shape(config=_t5(24, 1024, 16, 4096), summary="T5 large"),
    "t5-3b": Shape(config=_t5(24, 1024, 32, 16384, 128), summary="T5 3B"),
    "t5-11b": Shape(config=_t5(24, 1024, 128, 65536, 128), summary="T5 11B"),
    **{f"t5-v1.1-{size}": Shape(config=_later(*sizes), summary=f"T5 1.1 {size}") for size, sizes in _LATER.items()},
    **{
        f"mt5-{size}": Shape(config=_later(*sizes, vocab=_MANY_LANGUAGES), summary=f"mT5 {size}")
        for size, sizes in _LATER.items()
    },
}
