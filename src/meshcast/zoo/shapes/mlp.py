"""Residual MLPs with hand-written tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpConfig:
    """The sizes of a stack of two-product blocks."""

    layers: int
    dim: int
    ffn: int


SHAPES = {
    "mlp-tiny": Shape(
        config=MlpConfig(layers=2, dim=32, ffn=64), summary="MLP with hand-written tensor parallelism, small"
    ),
    "mlp-large": Shape(
        config=MlpConfig(layers=8, dim=8192, ffn=28672),
        summary="MLP with hand-written tensor parallelism, the width of Llama 70B",
    ),
}
