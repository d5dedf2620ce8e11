"""GPT-2 (Radford 2019), GPT-3 (Brown 2020), Megatron's GPTs (Narayanan 2021, Korthikanti 2022), OPT (Zhang 2022).

GPT-3's table gives two shapes whose heads do not make up the width: XL (24 heads of 128 in 2048) and 13B (5140 wide).
They are 16 heads and 5120 here, as the reimplementations have them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshcast.zoo.shapes.checks import require_divides, require_one_of
from meshcast.zoo.shapes.shape import Shape

ACTIVATIONS = ("gelu", "exact_gelu", "relu")


@dataclass(frozen=True, slots=True, kw_only=True)
class GptConfig:
    """The sizes of a model; a feed-forward width of zero is four times the model's.

    Attributes:
        post_norm: Each half of a layer is normalised behind its residual sum, and nothing after the last (OPT 350M).
        embedding_dim: Width of the embedding, projected to the model's and back; zero for the model's own.
    """

    layers: int
    dim: int
    heads: int
    vocab: int = 50257
    positions: int = 1024
    ffn: int = 0
    activation: str = "gelu"
    post_norm: bool = False
    embedding_dim: int = 0

    def __post_init__(self) -> None:
        require_divides(self, "heads", "dim")
        require_one_of(self, "activation", ACTIVATIONS)

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.dim // self.heads,)

    def part(self, first: int, layers: int) -> GptConfig:
        """The configuration of some layers in a row, as a model of its own; all are alike."""
        return replace(self, layers=layers)

    @property
    def hidden(self) -> int:
        """The feed-forward width."""
        return self.ffn or 4 * self.dim


def _gpt(layers: int, dim: int, heads: int, *, vocab: int = 50257, positions: int = 1024) -> GptConfig:
    return GptConfig(layers=layers, dim=dim, heads=heads, vocab=vocab, positions=positions)


_GPT3 = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 16), "1.3b": (24, 2048, 16),
         "2.7b": (32, 2560, 32), "6.7b": (32, 4096, 32), "13b": (40, 5120, 40), "175b": (96, 12288, 96)}  # fmt: skip
_MEGATRON = {"1.7b": (24, 2304, 24), "3.6b": (30, 3072, 32), "7.5b": (36, 4096, 32), "18b": (40, 6144, 48),
             "22b": (48, 6144, 64), "39b": (48, 8192, 64), "76b": (60, 10240, 80), "145b": (80, 12288, 96),
             "310b": (96, 16384, 128), "530b": (105, 20480, 128), "1t": (128, 25600, 160)}  # fmt: skip

SHAPES = {
    "gpt2-tiny": Shape(config=_gpt(2, 64, 4, vocab=257, positions=128), summary="GPT-2 with two small layers"),
    "gpt2-small": Shape(config=_gpt(12, 768, 12), summary="GPT-2 124M"),
    "gpt2-medium": Shape(config=_gpt(24, 1024, 16), summary="GPT-2 355M"),
    "gpt2-large": Shape(config=_gpt(36, 1280, 20), summary="GPT-2 774M"),
    "gpt2-xl": Shape(config=_gpt(48, 1600, 25), summary="GPT-2 1.6B"),
    **{
        f"gpt3-{name}": Shape(config=_gpt(*sizes, positions=2048), summary=f"GPT-3 {name.upper()}")
        for name, sizes in _GPT3.items()
    },
    **{
        f"megatron-{name}": Shape(
            config=_gpt(*sizes, vocab=51200, positions=2048), summary=f"Megatron's GPT {name.upper()}"
        )
        for name, sizes in _MEGATRON.items()
    },
}
