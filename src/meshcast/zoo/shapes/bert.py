"""BERT (Devlin 2019): sizes of the published models."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require_divides
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """The sizes of a model; a feed-forward width of zero is four times the model's.

    With `one_hot_types` kinds of tokens are picked by a product with ones and zeros, as in Google's code ("always faster for a
    small vocabulary": google-research/bert, modeling.py) and in NVIDIA's for TensorFlow, not looked up: so is their gradient.
    """

    layers: int
    dim: int
    heads: int
    vocab: int = 30522
    positions: int = 512
    types: int = 2
    ffn: int = 0
    one_hot_types: bool = False

    def __post_init__(self) -> None:
        require_divides(self, "heads", "dim")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.dim // self.heads,)

    @property
    def hidden(self) -> int:
        """The feed-forward width."""
        return self.ffn or 4 * self.dim


SHAPES = {
    "bert-tiny": Shape(
        config=BertConfig(layers=2, dim=64, heads=4, vocab=512, positions=64), summary="BERT with two small layers"
    ),
    "bert-base": Shape(config=BertConfig(layers=12, dim=768, heads=12), summary="BERT base, uncased"),
    "bert-large": Shape(config=BertConfig(layers=24, dim=1024, heads=16), summary="BERT large, uncased"),
}
