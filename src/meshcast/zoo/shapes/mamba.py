"""Mamba (Gu & Dao 2023): sizes of the published models."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaConfig:
    """The sizes of a selective state-space model.

    Attributes:
        inner: Channels of a layer; twice the width where zero.
        state: Numbers that each channel remembers.
        window: Positions of the causal convolution.
        step_rank: Width of the projection to step sizes; a sixteenth of the width, rounded up, where zero.
        chunk: Positions that one associative scan combines; chunks follow each other.
    """

    layers: int
    dim: int
    vocab: int = 50280
    inner: int = 0
    state: int = 16
    window: int = 4
    step_rank: int = 0
    chunk: int = 256

    @property
    def channels(self) -> int:
        """The channels of a layer."""
        return self.inner or 2 * self.dim

    @property
    def rank(self) -> int:
        """The width of the projection to step sizes."""
        return self.step_rank or -(-self.dim // 16)


_SIZES = {"130m": (24, 768), "370m": (48, 1024), "790m": (48, 1536), "1.4b": (48, 2048), "2.8b": (64, 2560)}

SHAPES = {
    "mamba-tiny": Shape(
        config=MambaConfig(layers=2, dim=32, vocab=256, state=4, chunk=8), summary="Mamba with two small layers"
    ),
    **{
        f"mamba-{name}": Shape(config=MambaConfig(layers=layers, dim=dim), summary=f"Mamba {name.upper()}")
        for name, (layers, dim) in _SIZES.items()
    },
}
