"""U-Nets of latent diffusion (Rombach 2022): Stable Diffusion's denoiser."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.zoo.shapes.checks import require
from meshcast.zoo.shapes.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class UnetConfig:
    """The sizes of a denoiser.

    Attributes:
        widths: Channels of every resolution; each halves the one before.
        attended: Which resolutions attend to the text: one digit each, 1 or 0.
        depths: Layers of attention to the text behind a residual block of each resolution that attends; one where empty. The
            middle has as many as the last resolution.
        added: Width of a vector that joins the time step's: the whole text, and a picture's sizes (Podell 2023); 0: none.
        blocks: Residual blocks of a resolution on the way down; one more on the way up.
        heads: Of attention at every resolution, where `head_width` is 0; else heads are as wide as that at each.
        context: Width of a text token, `words` of them.
        groups: Channels are normalised in so many groups.
        image: Side of the latents, `channels` deep.
    """

    widths: tuple[int, ...]
    attended: str = "1110"
    depths: tuple[int, ...] = ()
    added: int = 0
    blocks: int = 2
    heads: int = 8
    head_width: int = 0
    context: int = 768
    words: int = 77
    groups: int = 32
    image: int = 64
    channels: int = 4

    def __post_init__(self) -> None:
        require(
            len(self.attended) == len(self.widths) and set(self.attended) <= {"0", "1"},
            f"attended={self.attended!r} is not one digit, 0 or 1, for each of {len(self.widths)} resolutions",
            'e.g. attended="1110"',
        )
        require(
            not self.depths or len(self.depths) == len(self.widths),
            f"depths={self.depths} is not one number for each of {len(self.widths)} resolutions",
            "e.g. depths=1,2,10",
        )
        for width in self.widths:
            require(width % self.groups == 0, f"width {width} is not divisible by groups={self.groups}")
            if self.head_width:
                require(width % self.head_width == 0, f"width {width} is not divisible by head_width={self.head_width}")
            else:
                require(width % self.heads == 0, f"width {width} is not divisible by heads={self.heads}")
        halvings = 2 ** (len(self.widths) - 1)
        require(self.image % halvings == 0, f"image={self.image} cannot be halved {len(self.widths) - 1} times")

    def depth(self, height: int) -> int:
        """Layers of attention behind each residual block of a resolution."""
        return (self.depths[height] if self.depths else 1) if self.attended[height] == "1" else 0

    @property
    def middle(self) -> int:
        """Layers of attention at the lowest resolution's middle."""
        return self.depths[-1] if self.depths else 1

    def heads_of(self, width: int) -> int:
        """Heads of a resolution of so many channels."""
        return width // self.head_width if self.head_width else self.heads

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of its heads, by resolution."""
        return tuple(sorted({width // self.heads_of(width) for width in self.widths}))

    @property
    def time(self) -> int:
        """The width of a time step's vector."""
        return 4 * self.widths[0]


SHAPES = {
    "unet-tiny": Shape(
        config=UnetConfig(
            widths=(16, 32), attended="10", blocks=1, heads=2, context=24, words=5, groups=4, image=8, channels=4
        ),
        summary="U-Net of diffusion with two small resolutions",
    ),
    "unet-sd15": Shape(
        config=UnetConfig(widths=(320, 640, 1280, 1280)), summary="Stable Diffusion 1.5's U-Net on latents of 64x64"
    ),
    # MLPerf Training's text-to-image model from 3.1 to 5.0 is trained on latents of 64x64 too.
    "unet-sd2": Shape(
        config=UnetConfig(widths=(320, 640, 1280, 1280), head_width=64, context=1024),
        summary="Stable Diffusion 2's U-Net on latents of 64x64 (MLPerf 3.1 to 5.0)",
    ),
    "unet-sdxl": Shape(
        config=UnetConfig(
            widths=(320, 640, 1280),
            attended="011",
            depths=(1, 2, 10),
            head_width=64,
            context=2048,
            added=2816,
            image=128,
        ),
        summary="Stable Diffusion XL's U-Net on latents of 128x128",
    ),
}
