"""Elementwise programs: one to six operands, broadcasts, slow functions, masks, casts, rotations, optimizer updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import ProbeBody, ProbeChoices, Settings

COUNT = 320
MOST_BYTES = 4e9
Spec = jax.ShapeDtypeStruct


def _rope(x: Any, cosine: Any, sine: Any) -> Any:
    """Rotary embedding of (rows, dim): halves rotated against each other."""
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=-1)


def _dropout(x: Any, key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0).astype(x.dtype)


# Same-shaped operands: how many, and what is done.
PLAIN: dict[str, tuple[int, Callable[..., Any]]] = {
    "copy_neg": (1, lambda a: -a),
    "relu": (1, jax.nn.relu),
    "exp": (1, jnp.exp),
    "tanh": (1, jnp.tanh),
    "gelu": (1, jax.nn.gelu),
    "gelu_exact": (1, lambda a: jax.nn.gelu(a, approximate=False)),
    "silu": (1, jax.nn.silu),
    "rsqrt": (1, lambda a: jax.lax.rsqrt(jnp.abs(a) + 1)),
    "sincos": (1, lambda a: jnp.sin(a) + jnp.cos(a)),
    "power": (1, lambda a: jnp.power(jnp.abs(a), 1.7)),
    "widen": (1, lambda a: a.astype(jnp.float32)),
    "narrow": (1, lambda a: a.astype(jnp.bfloat16) if a.dtype == jnp.float32 else a.astype(jnp.float8_e4m3fn)),
    "quantize": (1, lambda a: jnp.clip(jnp.round(a * 127), -128, 127).astype(jnp.int8)),
    "add": (2, lambda a, b: a + b),
    "divide": (2, lambda a, b: a / (b + 2)),
    "swiglu": (2, lambda a, b: jax.nn.silu(a) * b),
    "gelu_grad": (2, lambda a, g: jax.vjp(jax.nn.gelu, a)[1](g)[0]),
    "silu_grad": (3, lambda a, b, g: jax.vjp(lambda x, y: jax.nn.silu(x) * y, a, b)[1](g)),
    "multiply_add": (3, lambda a, b, c: a * b + c),
    "blend4": (4, lambda a, b, c, d: a * b + c * d),
    "two_results": (4, lambda a, b, c, d: (a + b, c * d)),
    "sum6": (6, lambda a, b, c, d, e, f: a + b + c + d + e + f),
}
OTHERS = ("mask", "bias", "scale_rows", "outer", "rope", "dropout", "adam", "adamw", "sgd", "momentum", "accumulate")


def _adam(weight: Any, first: Any, second: Any, gradient: Any, decay: float) -> tuple[Any, Any, Any]:
    """One Adam step of a tensor with its moments in fp32."""
    slope = gradient.astype(jnp.float32)
    first = 0.9 * first + 0.1 * slope
    second = 0.999 * second + 0.001 * slope**2
    step = first / (jnp.sqrt(second) + 1e-8) + decay * weight.astype(jnp.float32)
    return (weight.astype(jnp.float32) - 1e-4 * step).astype(weight.dtype), first, second


def _optimizer(op: str, shapes: list[tuple[int, ...]], dtype: Any) -> ProbeBody:
    """An update of every tensor in place."""
    weights = [Spec(shape, dtype) for shape in shapes]
    moments = [Spec(shape, jnp.float32) for shape in shapes]
    if op in ("adam", "adamw"):
        decay = 0.01 if op == "adamw" else 0.0

        def adam(weights: Any, firsts: Any, seconds: Any, gradients: Any) -> Any:
            parts = [_adam(*each, decay) for each in zip(weights, firsts, seconds, gradients, strict=True)]
            return tuple([part[i] for part in parts] for i in range(3))

        return ProbeBody(function=adam, args=(weights, moments, moments, weights), donate=(0, 1, 2))
    if op == "momentum":

        def momentum(weights: Any, speeds: Any, gradients: Any) -> Any:
            speeds = [0.9 * s + g.astype(jnp.float32) for s, g in zip(speeds, gradients, strict=True)]
            return [(w - 0.1 * s).astype(w.dtype) for w, s in zip(weights, speeds, strict=True)], speeds

        return ProbeBody(function=momentum, args=(weights, moments, weights), donate=(0, 1))

    def sgd(weights: Any, gradients: Any) -> Any:
        return ([w - g * jnp.asarray(0.1, w.dtype) for w, g in zip(weights, gradients, strict=True)],)

    def accumulate(totals: Any, gradients: Any) -> Any:
        return ([t + g.astype(jnp.float32) for t, g in zip(totals, gradients, strict=True)],)

    if op == "sgd":
        return ProbeBody(function=sgd, args=(weights, weights), donate=(0,))
    return ProbeBody(function=accumulate, args=(moments, weights), donate=(0,))


def build(op: str, rows: int, cols: int, dtype: str, tensors: int = 1) -> ProbeBody:
    """An op on (rows, cols); optimizer updates take `tensors` of them, every other one a vector of `cols`."""
    kind = jnp.dtype(dtype)
    x = Spec((rows, cols), kind)
    if op in PLAIN:
        operands, function = PLAIN[op]
        return ProbeBody(function=function, args=(x,) * operands)
    if op == "mask":
        return ProbeBody(function=lambda m, a, b: jnp.where(m, a, b), args=(Spec(x.shape, jnp.bool_), x, x))
    if op == "bias":
        return ProbeBody(function=lambda a, b: jax.nn.gelu(a + b), args=(x, Spec((cols,), kind)))
    if op == "scale_rows":
        return ProbeBody(function=lambda a, s, b: a * s[:, None] + b, args=(x, Spec((rows,), kind), x))
    if op == "outer":
        return ProbeBody(function=lambda a, b: a[:, None] * b[None, :], args=(Spec((rows,), kind), Spec((cols,), kind)))
    if op == "rope":
        half = Spec((rows, cols // 2), kind)
        return ProbeBody(function=_rope, args=(x, half, half))
    if op == "dropout":
        return ProbeBody(function=_dropout, args=(x, Spec((2,), jnp.uint32)))
    shapes: list[tuple[int, ...]] = [(rows, cols) if i % 2 == 0 else (cols,) for i in range(tensors)]
    return _optimizer(op, shapes, kind)


def probes() -> Iterator[Settings]:
    """The family's list: sizes from a thousand to half a thousand million elements."""
    draw = ProbeChoices("elementwise/1")
    names = [*PLAIN, *OTHERS]
    made = 0
    while made < COUNT:
        op = names[made % len(names)]
        elements = draw.log_uniform(1024, 2**29)
        cols = draw.pick((64, 128, 256, 512, 768, 1024, 2048, 3072, 4096, 8192, draw.log_uniform(16, 65536, 2)))
        rows = max(1, elements // cols)
        dtype = draw.pick(("bfloat16", "float32"))
        settings: Settings = {"op": op, "rows": rows, "cols": cols, "dtype": dtype}
        operands = PLAIN[op][0] + 1 if op in PLAIN else 5
        if op in ("adam", "adamw", "momentum", "sgd") and draw.chance(0.4):
            settings["tensors"] = draw.pick((2, 4, 8, 24, 48))
            operands *= int(settings["tensors"]) // 2
        if rows * cols * operands * (2 if dtype == "bfloat16" else 4) > MOST_BYTES:
            continue
        if op == "dropout" and rows * cols > 2**26:
            continue
        made += 1
        yield settings
