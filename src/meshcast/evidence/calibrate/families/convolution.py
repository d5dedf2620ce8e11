"""Convolutions: forward, by the image and by the filter; one to three dimensions, depthwise, few channels, dilated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import LIBRARY, ProbeBody, ProbeChoices, Settings

COUNT = 350
MOST_FLOPS = 2e12
MOST_BYTES = 1.5e9

_LAYOUTS = {
    ("nhwc", 1): ("NWC", "WIO", "NWC"),
    ("nhwc", 2): ("NHWC", "HWIO", "NHWC"),
    ("nhwc", 3): ("NDHWC", "DHWIO", "NDHWC"),
    ("nchw", 1): ("NCW", "OIW", "NCW"),
    ("nchw", 2): ("NCHW", "OIHW", "NCHW"),
    ("nchw", 3): ("NCDHW", "OIDHW", "NCDHW"),
}


def build(
    what: str,
    n: int,
    h: int,
    cin: int,
    cout: int,
    k: int,
    stride: int,
    dtype: str,
    layout: str = "nhwc",
    groups: int = 1,
    dilation: int = 1,
    dims: int = 2,
    epilogue: str = "none",
) -> ProbeBody:
    """A convolution of `n` images of side `h`, or its gradient by the image (`dgrad`) or the filter (`wgrad`)."""
    names = _LAYOUTS[layout, dims]
    spatial, window = (h,) * dims, (k,) * dims
    channels_last = layout == "nhwc"
    image = jax.ShapeDtypeStruct((n, *spatial, cin) if channels_last else (n, cin, *spatial), jnp.dtype(dtype))
    taps = (*window, cin // groups, cout) if channels_last else (cout, cin // groups, *window)
    kernel = jax.ShapeDtypeStruct(taps, jnp.dtype(dtype))

    def forward(image: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            image,
            kernel,
            (stride,) * dims,
            "SAME",
            rhs_dilation=(dilation,) * dims,
            dimension_numbers=names,
            feature_group_count=groups,
        )

    result = jax.eval_shape(forward, image, kernel)
    flops = 2.0 * math.prod(result.shape) * (cin // groups) * k**dims
    if what == "fwd" and epilogue == "none":
        return ProbeBody(function=forward, args=(image, kernel), flops=flops)
    if what == "fwd":
        bias = jax.ShapeDtypeStruct((cout,) if channels_last else (cout, *(1,) * dims), jnp.dtype(dtype))

        def with_bias(image: Any, kernel: Any, bias: Any) -> Any:
            return jax.nn.relu(forward(image, kernel) + bias)

        return ProbeBody(function=with_bias, args=(image, kernel, bias), flops=flops)
    position = 0 if what == "dgrad" else 1

    def gradient(image: Any, kernel: Any, cotangent: Any) -> Any:
        return jax.vjp(forward, image, kernel)[1](cotangent)[position]

    return ProbeBody(
        function=gradient,
        args=(image, kernel, jax.ShapeDtypeStruct(result.shape, result.dtype)),
        flops=flops,
    )


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("conv/1")
    made = 0
    while made < COUNT:
        settings: Settings = {
            "what": draw.pick(("fwd", "fwd", "dgrad", "wgrad")),
            "n": draw.pick((1, 2, 4, 8, 16, 32, 32, 64, 128, 256)),
            "h": draw.pick((7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224)),
            "cin": draw.pick((16, 32, 64, 64, 96, 128, 160, 192, 256, 320, 512, 768, 1024, 2048)),
            "cout": draw.pick((16, 32, 64, 64, 96, 128, 192, 256, 320, 512, 768, 1024, 2048)),
            "k": draw.pick((1, 1, 1, 3, 3, 3, 3, 3, 5, 7)),
            "stride": draw.pick((1, 1, 1, 2)),
            "dtype": draw.pick(("bfloat16", "bfloat16", "float32")),
            "layout": draw.pick(("nhwc", "nhwc", "nchw")),
        }
        _specialise(draw, settings)
        if not _fits(settings):
            continue
        # A 1x1 convolution becomes a product; elsewhere the flag changes nothing but saves the search.
        if draw.chance(0.6):
            settings["tune"] = LIBRARY
        made += 1
        yield settings


def _specialise(draw: ProbeChoices, settings: Settings) -> None:
    """Turns some into stems, patches, depthwise, dilated, 1D and 3D ones, or adds a bias and a rectifier."""
    special = draw.pick(("none",) * 12 + ("stem", "patch", "depthwise", "depthwise", "dilated", "line", "volume"))
    if special == "stem":
        settings.update(cin=3, k=draw.pick((3, 7)), stride=draw.pick((1, 2)), h=draw.pick((32, 128, 224)))
        settings["cout"] = draw.pick((32, 64))
        settings["what"] = draw.pick(("fwd", "fwd", "wgrad"))
    elif special == "patch":
        settings.update(cin=3, k=16, stride=16, h=draw.pick((128, 224, 384)), cout=draw.pick((384, 768, 1024)))
        settings["what"] = draw.pick(("fwd", "fwd", "wgrad"))
    elif special == "depthwise":
        settings["cout"] = settings["groups"] = settings["cin"]
        settings["k"] = draw.pick((3, 3, 5, 7))
    elif special == "dilated":
        settings.update(k=3, stride=1, dilation=draw.pick((2, 4)))
    elif special == "line":
        settings.update(dims=1, k=draw.pick((3, 5, 7)), h=draw.pick((128, 512, 1024, 4096)))
    elif special == "volume":
        settings.update(dims=3, k=3, h=draw.pick((8, 16, 32)), n=draw.pick((1, 2, 8)))
    elif settings["what"] == "fwd" and draw.chance(0.25):
        settings["epilogue"] = "bias_relu"


def _fits(settings: Settings) -> bool:
    """Whether it is neither too large nor a stride over less than a window."""
    dims = int(settings.get("dims", 2))
    n, h, cin, cout, k, stride = (int(settings[name]) for name in ("n", "h", "cin", "cout", "k", "stride"))
    if k > h:
        return False
    size = 4 if settings["dtype"] == "float32" else 2
    pixels = math.prod((n, *(-(-h // stride),) * dims))
    flops = 2.0 * pixels * cout * cin / int(settings.get("groups", 1)) * math.prod((k,) * dims)
    moved = size * (math.prod((n, *(h,) * dims)) * cin + pixels * cout)
    return flops * (4 if size == 4 else 1) <= MOST_FLOPS and moved <= MOST_BYTES
