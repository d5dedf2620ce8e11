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


SHAPES = {
    "t5-tiny": Shape(
        config=T5Config(layers=2, dim=64, heads=4, ffn=128, head_dim=16, vocab=512), summary="T5 with two small layers"
    ),
    "t5-small": Shape(config=_t5(6, 512, 8, 2048), summary="T5 small"),
    "t5-base": Shape(config=_t5(12, 768, 12, 3072), summary="T5 base"),
    "t5-large": Shape(config=_t5(24, 1024, 16, 4096), summary="T5 large"),
    "t5-3b": Shape(config=_t5(24, 1024, 32, 16384, 128), summary="T5 3B"),
    "t5-11b": Shape(config=_t5(24, 1024, 128, 65536, 128), summary="T5 11B"),
}
