"""Convolutions off the beaten track: grouped, depthwise, one-dimensional, transposed, dilated, of few channels, in f32.

The programs are those of the family `convolution`; separable and transposed ones are made of it here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.families import convolution
from meshcast.evidence.calibrate.probe import LIBRARY, ProbeBody, ProbeChoices, Settings

COUNT = 150
MOST_FLOPS = 4e11
MOST_BYTES = 6e8
Spec = jax.ShapeDtypeStruct
FORMS = (
    "depthwise",
    "depthwise",
    "grouped",
    "line",
    "line_depthwise",
    "dilated",
    "few",
    "plain",
    "transposed",
    "image",
)


def build(what: str, n: int, h: int, cin: int, cout: int, k: int, stride: int, dtype: str, **others: Any) -> ProbeBody:
    """A convolution of the family `convolution`, or (`transposed`) one that spreads its image by the stride."""
    if what != "transposed":
        return convolution.build(what, n, h, cin, cout, k, stride, dtype, **others)
    image, taps = Spec((n, h, h, cin), jnp.dtype(dtype)), Spec((k, k, cin, cout), jnp.dtype(dtype))
    return ProbeBody(
        function=lambda x, w: jax.lax.conv_transpose(x, w, (stride, stride), "SAME"),
        args=(image, taps),
        flops=2.0 * n * (h * stride) ** 2 * cin * cout * k * k / stride**2,
    )


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("filters/1")
    made = 0
    while made < COUNT:
        form = FORMS[made % len(FORMS)]
        settings = _drawn(form, draw)
        if not _fits(settings):
            continue
        if draw.chance(0.8):
            settings["tune"] = LIBRARY
        made += 1
        yield settings


def _drawn(form: str, draw: ProbeChoices) -> Settings:
    channels = draw.pick((16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 960))
    settings: Settings = {
        "what": draw.pick(("fwd", "fwd", "dgrad", "wgrad")),
        "n": draw.pick((1, 2, 4, 8, 16, 32, 64)),
        "h": draw.pick((7, 14, 16, 28, 32, 56, 64, 112, 128)),
        "cin": channels,
        "cout": draw.pick((channels, channels, 32, 64, 128, 256)),
        "k": draw.pick((1, 3, 3, 3, 5, 7)),
        "stride": draw.pick((1, 1, 1, 2)),
        "dtype": draw.pick(("float32", "float32", "float32", "bfloat16", "float16")),
        "layout": draw.pick(("nhwc", "nhwc", "nchw")),
    }
    if form in ("depthwise", "line_depthwise"):
        settings |= {"cout": channels, "groups": channels, "k": draw.pick((3, 3, 5, 7))}
    if form == "grouped":
        settings |= {"cout": channels, "groups": draw.pick((2, 4, 8)), "k": 3}
    if form.startswith("line"):
        settings |= {"dims": 1, "h": draw.pick((64, 256, 1000, 4096, 16384))}
    if form == "dilated":
        settings |= {"k": 3, "stride": 1, "dilation": draw.pick((2, 4, 8))}
    if form == "few":
        settings |= {"cin": draw.pick((1, 2, 3, 4)), "k": draw.pick((3, 5, 7))}
    if form == "image":  # filters of an image: one channel in and out, large windows
        settings |= {"cin": 1, "cout": 1, "k": draw.pick((3, 5, 9, 15)), "h": draw.pick((128, 512, 1024)), "stride": 1}
    if form == "transposed":
        settings |= {"what": "transposed", "k": draw.pick((2, 3, 4)), "stride": 2, "layout": "nhwc"}
        del settings["layout"]
    return settings


def _fits(settings: Settings) -> bool:
    n, h, cin, cout, k = (int(settings[name]) for name in ("n", "h", "cin", "cout", "k"))
    pixels = n * h ** int(settings.get("dims", 2)) * (4 if settings["what"] == "transposed" else 1)
    taps = k ** int(settings.get("dims", 2))
    flops = 2.0 * pixels * cout * cin / int(settings.get("groups", 1)) * taps
    return flops <= MOST_FLOPS and pixels * (cin + cout) * 4 <= MOST_BYTES and k <= h
