"""Pieces of vision models, forward and gradient: bottlenecks, inverted bottlenecks, double convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.families.norms import batch_norm, group_norm
from meshcast.evidence.calibrate.probe import LIBRARY, ProbeBody, ProbeChoices, Settings

COUNT = 40
MOST_FLOPS = 2e12
Spec = jax.ShapeDtypeStruct


def _conv(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=names, feature_group_count=groups
    )


def bottleneck(x: Any, w: dict[str, Any]) -> Any:
    """ResNet's: 1x1, 3x3, 1x1 with batch norms and a shortcut."""
    h = jax.nn.relu(batch_norm(_conv(x, w["reduce"]), w["scale1"], w["bias1"]))
    h = jax.nn.relu(batch_norm(_conv(h, w["middle"]), w["scale2"], w["bias2"]))
    return jax.nn.relu(x + batch_norm(_conv(h, w["expand"]), w["scale3"], w["bias3"]))


def inverted(x: Any, w: dict[str, Any]) -> Any:
    """MobileNet's: widen, depthwise, squeeze and excite, narrow."""
    h = jax.nn.silu(batch_norm(_conv(x, w["expand"]), w["scale1"], w["bias1"]))
    h = jax.nn.silu(batch_norm(_conv(h, w["depth"], groups=h.shape[-1]), w["scale2"], w["bias2"]))
    gate = jax.nn.sigmoid(jax.nn.silu(h.mean((1, 2)) @ w["squeeze"]) @ w["excite"])
    return x + batch_norm(_conv(h * gate[:, None, None], w["reduce"]), w["scale3"], w["bias3"])


def double(x: Any, w: dict[str, Any]) -> Any:
    """U-Net's: two 3x3 convolutions with group norms."""
    h = jax.nn.silu(group_norm(_conv(x, w["first"]), w["scale1"], w["bias1"]))
    return jax.nn.silu(group_norm(_conv(h, w["second"]), w["scale2"], w["bias2"])) + x


def _vectors(*widths: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}{i}": (width,) for i, width in enumerate(widths, 1) for name in ("scale", "bias")}


def _bottleneck_weights(c: int) -> dict[str, tuple[int, ...]]:
    shapes = {"reduce": (1, 1, c, c // 4), "middle": (3, 3, c // 4, c // 4), "expand": (1, 1, c // 4, c)}
    return shapes | _vectors(c // 4, c // 4, c)


def _inverted_weights(c: int) -> dict[str, tuple[int, ...]]:
    wide = 4 * c
    shapes = {"expand": (1, 1, c, wide), "depth": (3, 3, 1, wide), "reduce": (1, 1, wide, c)}
    return shapes | {"squeeze": (wide, c // 4), "excite": (c // 4, wide)} | _vectors(wide, wide, c)


def _double_weights(c: int) -> dict[str, tuple[int, ...]]:
    return {"first": (3, 3, c, c), "second": (3, 3, c, c)} | _vectors(c, c)


OPS: dict[str, tuple[Callable[[Any, dict[str, Any]], Any], Callable[[int], dict[str, tuple[int, ...]]]]] = {
    "bottleneck": (bottleneck, _bottleneck_weights),
    "inverted": (inverted, _inverted_weights),
    "double": (double, _double_weights),
}


def build(op: str, n: int, h: int, c: int, grad: int, dtype: str = "bfloat16") -> ProbeBody:
    """A block on `n` images of side `h` with `c` channels."""
    kind = jnp.dtype(dtype)
    function, shapes = OPS[op]
    weights = {
        name: Spec(shape, jnp.float32 if len(shape) == 1 and op != "double" else kind)
        for name, shape in shapes(c).items()
    }
    x = Spec((n, h, h, c), kind)
    flops = 2.0 * n * h * h * sum(w.size for w in weights.values() if len(w.shape) == 4) * (3 if grad else 1)
    if not grad:
        return ProbeBody(function=function, args=(x, weights), flops=flops)

    def gradient(x: Any, w: Any, cotangent: Any) -> Any:
        return jax.vjp(function, x, w)[1](cotangent)

    return ProbeBody(function=gradient, args=(x, weights, x), flops=flops)


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("vision/1")
    made = 0
    while made < COUNT:
        op = draw.pick(tuple(OPS))
        n, h = draw.pick((1, 8, 16, 32, 64, 128)), draw.pick((7, 8, 14, 16, 28, 32, 56, 64, 112))
        c = draw.pick((32, 64, 128, 256)) if op == "inverted" else draw.pick((64, 128, 256, 512, 1024))
        if n * h * h * c > (5e7 if op == "inverted" else 2e8) or (
            op == "double" and 36.0 * n * h * h * c * c > MOST_FLOPS
        ):
            continue
        made += 1
        settings: Settings = {"op": op, "n": n, "h": h, "c": c, "grad": draw.pick((0, 1))}
        if draw.chance(0.2):
            settings["dtype"] = "float32"
        if draw.chance(0.6):
            settings["tune"] = LIBRARY
        yield settings
