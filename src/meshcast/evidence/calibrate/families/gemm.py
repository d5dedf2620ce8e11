"""Matrix products: sizes of language models and log-uniform ones, all operand orders, batches, epilogues, types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import LIBRARY, ProbeBody, ProbeChoices, Settings

COUNT = 960
MOST_FLOPS = 1.5e13
MOST_BYTES = 3e9

_RESULTS = {"int8": "int32", "float8_e4m3fn": "bfloat16"}
_WIDTHS = (256, 512, 768, 1024, 1280, 1600, 2048, 2560, 3072, 3200, 4096, 5120, 6144, 6656, 7168, 8192, 12288)
_FEED_FORWARD = {4096: (11008, 14336), 5120: (13824,), 8192: (28672,), 2048: (8192, 5632), 3200: (8640,), 3072: (8192,)}
_VOCABULARIES = (32000, 50257, 128256, 151936)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 197, 256, 384, 512, 768, 1024, 1576, 2048, 4096, 6304, 8192, 16384, 32768)
_DTYPES = ("bfloat16",) * 13 + ("float16",) * 2 + ("float32",) * 4 + ("int8", "float8_e4m3fn")
_EPILOGUES: dict[str, Callable[..., Any]] = {
    "bias": lambda y, extra: y + extra,
    "bias_relu": lambda y, extra: jax.nn.relu(y + extra),
    "bias_gelu": lambda y, extra: jax.nn.gelu(y + extra),
    "residual": lambda y, extra: y + extra,
    "silu": lambda y, extra: jax.nn.silu(y) * extra,
}


def build(
    m: int,
    n: int,
    k: int,
    dtype: str,
    lhs: str = "k",
    rhs: str = "n",
    batch: int = 1,
    epilogue: str = "none",
    out: str = "",
    precision: str = "default",
) -> ProbeBody:
    """`out[b,m,n] = sum_k lhs[b,m,k] rhs[b,k,n]`; `lhs` and `rhs` name each operand's innermost dimension."""
    offset = 1 if batch > 1 else 0
    lead = (batch,) * offset
    result = jnp.dtype(out or _RESULTS.get(dtype, dtype))
    left = jax.ShapeDtypeStruct((*lead, m, k) if lhs == "k" else (*lead, k, m), jnp.dtype(dtype))
    right = jax.ShapeDtypeStruct((*lead, k, n) if rhs == "n" else (*lead, n, k), jnp.dtype(dtype))
    contracted = ((offset + (lhs == "k"),), (offset + (rhs != "n"),))
    batched = (tuple(range(offset)), tuple(range(offset)))

    def product(a: Any, b: Any) -> Any:
        exact = jax.lax.Precision.HIGHEST if precision == "highest" else None
        return jax.lax.dot_general(a, b, (contracted, batched), precision=exact, preferred_element_type=result)

    flops = 2.0 * batch * m * n * k
    if epilogue == "none":
        return ProbeBody(function=product, args=(left, right), flops=flops)
    shape = (n,) if epilogue.startswith("bias") else (*lead, m, n)
    after = _EPILOGUES[epilogue]

    def fused(a: Any, b: Any, extra: Any) -> Any:
        return after(product(a, b), extra)

    return ProbeBody(function=fused, args=(left, right, jax.ShapeDtypeStruct(shape, result)), flops=flops)


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("gemm/1")
    made = 0
    while made < COUNT:
        dtype = draw.pick(_DTYPES)
        kind = draw.pick(("model", "model", "model", "plain", "plain", "batched", "gradient"))
        settings = _DRAWN[kind](draw)
        settings["dtype"] = dtype
        if not _fits(settings):
            continue
        if kind == "model" and dtype in ("bfloat16", "float16", "float32") and draw.chance(0.4):
            settings["epilogue"] = draw.pick(tuple(_EPILOGUES))
        elif dtype == "bfloat16" and draw.chance(0.12):
            settings["out"] = "float32"
        if dtype == "float32" and draw.chance(0.15):
            settings["precision"] = "highest"
        # 8-bit products take XLA up to a minute each to tune; library rows cost a tenth of a tuned one.
        if draw.chance(0.65) or dtype in ("int8", "float8_e4m3fn"):
            settings["tune"] = LIBRARY
        elif draw.chance(0.3):  # both ways, to see what tuning gains
            made += 1
            yield settings | {"tune": LIBRARY}
        made += 1
        yield settings


def _model(draw: ProbeChoices) -> Settings:
    """A layer's product: tokens by one of a decoder's weights, either way round, or by the vocabulary."""
    d = draw.pick(_WIDTHS)
    f = draw.pick((4 * d, *_FEED_FORWARD.get(d, ())))
    n, k = draw.pick(((3 * d, d), (d, d), (f, d), (d, f), (f, d), (d, f), (draw.pick(_VOCABULARIES), d)))
    rhs = draw.pick(("n", "n", "n", "k"))
    return {"m": draw.pick(_TOKENS), "n": n, "k": k, "lhs": "k", "rhs": rhs}


def _gradient(draw: ProbeChoices) -> Settings:
    """A weight's gradient: activations transposed by cotangents."""
    d = draw.pick(_WIDTHS)
    m, n = draw.pick(((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)))
    return {"m": m, "n": n, "k": draw.pick(_TOKENS[8:]), "lhs": "m", "rhs": draw.pick(("n", "n", "k"))}


def _plain(draw: ProbeChoices) -> Settings:
    """Any sizes: multiples of 128, 64 or 8, sometimes of nothing."""
    step = draw.pick((128, 64, 64, 8, 1))
    m, n, k = (draw.log_uniform(64, 32768, step) for _ in range(3))
    if draw.chance(0.25):
        m = draw.pick(_TOKENS[:7])
    if draw.chance(0.1):
        k = draw.log_uniform(16384, 65536, step)
    return {"m": m, "n": n, "k": k, "lhs": draw.pick(("k", "k", "m")), "rhs": draw.pick(("n", "n", "k"))}


def _batched(draw: ProbeChoices) -> Settings:
    """Scores and weighted values of attention, their gradients, and experts' products."""
    batch = draw.pick((2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512))
    head = draw.pick((32, 48, 64, 64, 64, 80, 96, 128, 128, 128, 192, 256))
    length = draw.pick((64, 128, 197, 256, 384, 512, 577, 1024, 2048, 4096))
    query = length if draw.chance(0.75) else draw.pick((1, 1, 4, 16, 128))
    shape = draw.pick(("scores", "scores", "values", "values", "gradient", "experts"))
    if shape == "scores":
        return {"m": query, "n": length, "k": head, "lhs": "k", "rhs": "k", "batch": batch}
    if shape == "values":
        return {"m": query, "n": head, "k": length, "lhs": "k", "rhs": "n", "batch": batch}
    if shape == "gradient":
        return {"m": length, "n": head, "k": query, "lhs": "m", "rhs": "n", "batch": batch}
    d = draw.pick((256, 512, 1024, 2048, 4096))
    n, k = draw.pick(((4 * d, d), (d, 4 * d), (d, d)))
    return {
        "m": draw.log_uniform(8, 2048, 8),
        "n": n,
        "k": k,
        "lhs": "k",
        "rhs": "n",
        "batch": draw.pick((2, 4, 8, 16, 64)),
    }


_DRAWN: dict[str, Callable[[ProbeChoices], Settings]] = {
    "model": _model,
    "plain": _plain,
    "batched": _batched,
    "gradient": _gradient,
}


def _fits(settings: Settings) -> bool:
    """Whether it is small enough; slow types have lower bounds."""
    size = jnp.dtype(str(settings["dtype"])).itemsize
    m, n, k = (int(settings[name]) for name in "mnk")
    batch = int(settings.get("batch", 1))
    moved = size * batch * (m * k + k * n) + max(2, size) * batch * m * n
    return 2.0 * batch * m * n * k * (8 if size == 4 else 1) <= MOST_FLOPS and moved <= MOST_BYTES
