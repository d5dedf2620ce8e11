"""Translators that MLPerf trained (v0.5 to 0.7) and NVIDIA's examples train: the Transformer (Vaswani 2017), GNMT (Wu 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require, require_divides
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """The sizes of an encoder and a decoder of as many layers, over one table of words that is the output projection too.

    The vocabulary is fairseq's joined one of WMT 2014, English and German, filled up to a multiple of eight
    (`PyTorch/Translation/Transformer` of NVIDIA/DeepLearningExamples).
    """

    layers: int
    dim: int
    heads: int
    ffn: int
    vocab: int = 33712

    def __post_init__(self) -> None:
        require_divides(self, "heads", "dim")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend."""
        return (self.dim // self.heads,)


@dataclass(frozen=True, slots=True, kw_only=True)
class GnmtConfig:
    """The sizes of GNMT v2: a table of words for both sides, an encoder whose first layer reads both ways, a decoder as deep.

    Four layers of 1,024 and 32,320 words in `PyTorch/Translation/GNMT` of NVIDIA/DeepLearningExamples and MLPerf's reference.
    """

    layers: int
    dim: int
    vocab: int = 32320

    def __post_init__(self) -> None:
        require(
            self.layers >= 2, f"layers={self.layers} leaves no layer behind the one that reads both ways", "layers=4"
        )


TRANSFORMERS = {
    "transformer-tiny": Shape(
        config=TransformerConfig(layers=2, dim=64, heads=4, ffn=128, vocab=512),
        summary="Vaswani's Transformer with two small layers a side",
    ),
    "transformer-base": Shape(
        config=TransformerConfig(layers=6, dim=512, heads=8, ffn=2048), summary="Vaswani's base Transformer"
    ),
    "transformer-big": Shape(
        config=TransformerConfig(layers=6, dim=1024, heads=16, ffn=4096),
        summary="Vaswani's big Transformer (MLPerf 0.5 to 0.7)",
    ),
}
GNMTS = {
    "gnmt-tiny": Shape(config=GnmtConfig(layers=2, dim=32, vocab=256), summary="GNMT with two small layers a side"),
    "gnmt": Shape(config=GnmtConfig(layers=4, dim=1024), summary="GNMT v2 (MLPerf 0.5 to 0.7)"),
}
