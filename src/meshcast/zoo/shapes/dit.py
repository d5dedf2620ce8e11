"""Diffusion Transformers (Peebles 2023): S, B, L and XL with patches of 2, 4 and 8."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require_divides
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class DitConfig:
    """The sizes of a model over latents of `image` by `image` by `channels`; it predicts noise and variance."""

    layers: int
    dim: int
    heads: int
    patch: int = 2
    image: int = 32
    channels: int = 4
    classes: int = 1000
    frequencies: int = 256

    def __post_init__(self) -> None:
        require_divides(self, "heads", "dim")
        require_divides(self, "patch", "image")

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.dim // self.heads,)

    @property
    def outputs(self) -> int:
        """The numbers predicted for every patch."""
        return self.patch * self.patch * 2 * self.channels


_SIZES = {"s": (12, 384, 6), "b": (12, 768, 12), "l": (24, 1024, 16), "xl": (28, 1152, 16)}

SHAPES = {
    "dit-tiny": Shape(
        config=DitConfig(layers=2, dim=64, heads=4, image=8, classes=16, frequencies=32),
        summary="Diffusion Transformer with two small layers",
    ),
    **{
        f"dit-{name}{patch}": Shape(
            config=DitConfig(layers=layers, dim=dim, heads=heads, patch=patch),
            summary=f"DiT-{name.upper()}/{patch} on latents of 32x32",
        )
        for name, (layers, dim, heads) in _SIZES.items()
        for patch in (2, 4, 8)
    },
}
