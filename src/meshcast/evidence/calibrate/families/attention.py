"""Attention: written plainly and through cuDNN, forward and gradient, grouped queries, decoding from a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import LIBRARY, ProbeBody, ProbeChoices, Settings
from meshcast.zoo import attention, causal_mask

COUNT = 160
MOST_SCORES = 6e8


def build(
    impl: str, b: int, s: int, h: int, d: int, kv: int, keys: int, causal: int, grad: int, dtype: str = "bfloat16"
) -> ProbeBody:
    """`b` sequences, `s` queries and `keys` keys, `h` heads of `d` over `kv` heads of keys."""
    query = jax.ShapeDtypeStruct((b, s, h, d), jnp.dtype(dtype))
    key = jax.ShapeDtypeStruct((b, keys, kv, d), jnp.dtype(dtype))

    def forward(q: Any, k: Any, v: Any) -> Any:
        if impl == "cudnn":
            return jax.nn.dot_product_attention(q, k, v, is_causal=bool(causal), implementation="cudnn")
        return attention(q, k, v, causal_mask(s) if causal else None)

    flops = 4.0 * b * h * s * keys * d * (3.5 if grad else 1)
    if not grad:
        return ProbeBody(function=forward, args=(query, key, key), flops=flops)

    def gradient(q: Any, k: Any, v: Any, cotangent: Any) -> Any:
        return jax.vjp(forward, q, k, v)[1](cotangent)

    return ProbeBody(function=gradient, args=(query, key, key, query), flops=flops)


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("attention/1")
    made = 0
    while made < COUNT:
        impl = draw.pick(("xla", "xla", "cudnn"))
        decode = draw.chance(0.25)
        length = draw.pick((128, 196, 256, 512, 1024, 2048, 4096, 8192))
        heads = draw.pick((4, 8, 12, 16, 20, 32, 40, 64))
        settings: Settings = {
            "impl": impl,
            "b": draw.pick((1, 2, 4, 8, 16, 32, 64)),
            "s": 1 if decode else length,
            "h": heads,
            "d": draw.pick((64, 64, 128, 128, 32, 80, 96, 256 if impl == "xla" else 128)),
            "kv": draw.pick((heads, heads, max(1, heads // 4))) if heads % 4 == 0 else heads,
            "keys": draw.pick((512, 2048, 4096, 8192, 32768)) if decode else length,
            "causal": 0 if decode else draw.pick((0, 1)),
            "grad": 0 if decode else draw.pick((0, 1)),
        }
        scores = int(settings["b"]) * int(settings["h"]) * int(settings["s"]) * int(settings["keys"])
        cache = int(settings["b"]) * int(settings["keys"]) * int(settings["kv"]) * int(settings["d"])
        if scores > MOST_SCORES * (4 if impl == "cudnn" else 1) or cache > 5e8 or scores < 2**14:
            continue
        if impl == "xla" and draw.chance(0.15):
            settings["dtype"] = "float32"
        if impl == "xla" and draw.chance(0.75):
            settings["tune"] = LIBRARY
        made += 1
        yield settings
