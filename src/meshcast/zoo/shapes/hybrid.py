"""Hybrids of Mamba-2, attention and feed-forward layers (Nemotron-H, arXiv 2504.03624), and Mamba-2 alone (Dao 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridConfig:
    """The sizes of a model of layers that are each one of three kinds.

    Attributes:
        mixers: Layers of Mamba-2, of `channels` in heads of `mixer_head`, whose states are `state` wide and come from `groups`
            projections; `window` positions of a causal convolution go before, and `chunk` positions are one block of products.
        attending: Layers of attention.
        wide: Feed-forward layers.
    """

    mixers: int
    attending: int
    wide: int
    dim: int
    vocab: int
    channels: int = 0
    mixer_head: int = 64
    state: int = 128
    groups: int = 8
    window: int = 4
    chunk: int = 128
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 128
    ffn: int = 0
    tied: bool = False

    def __post_init__(self) -> None:
        require(
            self.inner % self.mixer_head == 0,
            f"channels={self.inner} are not whole heads of mixer_head={self.mixer_head}",
            "change one of them",
        )
        require(
            self.mixer_heads % self.groups == 0,
            f"groups={self.groups} does not divide {self.mixer_heads} heads of Mamba-2",
            "change channels, mixer_head or groups",
        )

    @property
    def layers(self) -> int:
        """All layers."""
        return self.mixers + self.attending + self.wide

    @property
    def inner(self) -> int:
        """Channels of a layer of Mamba-2; twice the width where nothing else is said."""
        return self.channels or 2 * self.dim

    @property
    def mixer_heads(self) -> int:
        """Heads of a layer of Mamba-2."""
        return self.inner // self.mixer_head

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.head_dim,) if self.attending else ()


# config.json of nvidia/Nemotron-H-8B-Base-8K, -56B-Base-8K and nvidia/NVIDIA-Nemotron-Nano-9B-v2 (letters of
# `hybrid_override_pattern`), and of state-spaces/mamba2-*, whose vocabulary is filled up to a multiple of 16.
_MAMBA2 = {"130m": (24, 768), "370m": (48, 1024), "780m": (48, 1536), "1.3b": (48, 2048), "2.7b": (64, 2560)}
SHAPES = {
    "hybrid-tiny": Shape(
        config=HybridConfig(
            mixers=2,
            attending=1,
            wide=1,
            dim=32,
            vocab=256,
            mixer_head=16,
            state=8,
            groups=2,
            chunk=8,
            heads=4,
            kv_heads=2,
            head_dim=8,
            ffn=64,
        ),
        summary="Mamba-2, attention and feed-forward layers, small",
    ),
    "nemotron-h-8b": Shape(
        config=HybridConfig(
            mixers=24, attending=4, wide=24, dim=4096, vocab=131072, channels=8192, heads=32, kv_heads=8, ffn=21504
        ),
        summary="Nemotron-H 8B: 24 layers of Mamba-2, 24 feed-forward, 4 of attention",
    ),
    "nemotron-h-56b": Shape(
        config=HybridConfig(
            mixers=54,
            attending=10,
            wide=54,
            dim=8192,
            vocab=131072,
            channels=16384,
            state=256,
            heads=64,
            kv_heads=8,
            ffn=32768,
        ),
        summary="Nemotron-H 56B: 54 layers of Mamba-2, 54 feed-forward, 10 of attention",
    ),
    "nemotron-nano-9b-v2": Shape(
        config=HybridConfig(
            mixers=27,
            attending=4,
            wide=25,
            dim=4480,
            vocab=131072,
            channels=10240,
            mixer_head=80,
            heads=40,
            kv_heads=8,
            ffn=15680,
        ),
        summary="Nemotron Nano 9B v2: 27 layers of Mamba-2, 25 feed-forward, 4 of attention",
    ),
    **{
        f"mamba2-{name}": Shape(
            config=HybridConfig(
                mixers=layers, attending=0, wide=0, dim=dim, vocab=50288, groups=1, chunk=256, tied=True
            ),
            summary=f"Mamba-2 {name.upper()}",
        )
        for name, (layers, dim) in _MAMBA2.items()
    },
}
