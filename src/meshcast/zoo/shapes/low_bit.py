"""Fully quantised convolution networks (Verhoef 2019, FQ-Conv): keyword spotting, and ResNets for CIFAR's images (He 2016).

The paper's abstract has the method and ternary weights; tasks, other widths and sizes were not checked against it: take them as
ours. Sizes and widths are settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape

FEWEST_BITS, MOST_BITS = 2, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LowBitConfig:
    """Widths of a fully quantised network.

    Attributes:
        weight_bits: Of the weights between the first and the last layer: 2 are the three values -1, 0 and 1.
        activation_bits: Of what these layers take and give.
        edge_bits: Of the network's input, and of the first and the last layer, which the low-bit literature leaves wider.
        classes: Scores that come out.
    """

    weight_bits: int = 2
    activation_bits: int = 4
    edge_bits: int = 8
    classes: int = 10

    def __post_init__(self) -> None:
        for name in ("weight_bits", "activation_bits", "edge_bits"):
            bits = getattr(self, name)
            require(
                FEWEST_BITS <= bits <= MOST_BITS,
                f"{name}={bits} is not between {FEWEST_BITS} and {MOST_BITS}",
                f"e.g. {name}=4",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordConfig(LowBitConfig):
    """Keyword spotting: frames of cepstral coefficients, an embedding of each, dilated convolutions over time, their mean.

    A second of speech in frames of 25 ms, one every 10 ms, with 13 coefficients and their first and second differences;
    the 12 classes of Speech Commands (Warden 2018: ten words, silence, anything else). Widths and dilations are ours.
    """

    frames: int = 98
    coefficients: int = 39
    embedding: int = 100
    filters: int = 45
    dilations: tuple[int, ...] = (1, 1, 2, 4, 8, 8, 8)
    classes: int = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CifarConfig(LowBitConfig):
    """A ResNet of three stages of 16, 32 and 64 channels on 32 x 32 images: `6 blocks + 2` layers deep (He 2016, section 4.2).

    Where a stage changes the width its shortcut is a 1x1 convolution.
    """

    blocks: int = 3
    width: int = 16
    image: int = 32


def _widths(config: LowBitConfig, name: str, summary: str) -> dict[str, Shape]:
    """The network with ternary weights and activations of 4 bits, and its variants by `w`eight and `a`ctivation bits."""
    return {name: Shape(config=config, summary=f"{summary}, ternary weights, 4-bit activations")} | {
        f"{name}-w{weights}a{activations}": Shape(
            config=replace(config, weight_bits=weights, activation_bits=activations),
            summary=f"{summary}, weights of {weights} bits{' (ternary)' if weights == 2 else ''}, activations of {activations}",
        )
        for weights, activations in ((8, 8), (4, 4), (2, 2))
    }


KEYWORDS = {
    "fqconv-kws-tiny": Shape(
        config=KeywordConfig(frames=16, coefficients=8, embedding=8, filters=8, dilations=(1, 2), classes=4),
        summary="FQ-Conv keyword spotting with two small convolutions",
    ),
    **_widths(KeywordConfig(), "fqconv-kws", "FQ-Conv keyword spotting, seven dilated convolutions"),
}
CIFAR = {
    "fqconv-resnet-tiny": Shape(
        config=CifarConfig(blocks=1, width=4, image=8, classes=4), summary="FQ-Conv ResNet with three small blocks"
    ),
    **{
        name: shape
        for depth in (20, 32)
        for name, shape in _widths(
            CifarConfig(blocks=(depth - 2) // 6), f"fqconv-resnet{depth}", f"FQ-Conv ResNet-{depth} for CIFAR"
        ).items()
    },
}
