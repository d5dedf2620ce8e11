"""Small and slender matrix products: batches of tiny ones, vectors, few rows, in f32 with and without TF32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import LIBRARY, ProbeBody, ProbeChoices, Settings

COUNT = 160
MOST_BYTES = 4e8
MOST_FLOPS = 2e12
Spec = jax.ShapeDtypeStruct


def build(form: str, batch: int, m: int, n: int, k: int, dtype: str, precision: str = "default") -> ProbeBody:
    """`form` names the dimensions of both operands and of the result: `bmk.bkn.bmn`, or with the batch last or on one side."""
    left, right, result = form.split(".")
    sizes = {"b": batch, "m": m, "n": n, "k": k}
    exact = jax.lax.Precision.HIGHEST if precision == "highest" else None
    args = tuple(Spec(tuple(sizes[letter] for letter in side), jnp.dtype(dtype)) for side in (left, right))

    def product(a: Any, b: Any) -> Any:
        return jnp.einsum(f"{left},{right}->{result}", a, b, precision=exact)

    return ProbeBody(function=product, args=args, flops=2.0 * batch * m * n * k)


_TINY = ("bmk.bkn.bmn", "bmk.bnk.bmn", "bmk.kn.bmn", "mkb.knb.mnb", "bkm.bkn.bmn")
_SLENDER = ("mk.kn.mn", "mk.nk.mn", "km.kn.mn", "mk.k.m", "bmk.bk.bm")


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("small_products/1")
    made = 0
    while made < COUNT:
        tiny = made % 2 == 0
        if tiny:
            m, n, k = (draw.pick((1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32, 48)) for _ in range(3))
            batch, form = draw.log_uniform(16, 2**20), draw.pick(_TINY)
        else:
            m, k = draw.log_uniform(8, 32768), draw.log_uniform(8, 32768)
            n, batch, form = draw.pick((1, 2, 3, 8, 10, 16, 32, 64)), 1, draw.pick(_SLENDER)
            if form == "bmk.bk.bm":
                batch, m, k = draw.pick((8, 64, 512)), min(m, 1024), min(k, 1024)
        dtype = draw.pick(("float32", "float32", "float32", "bfloat16"))
        size = 4 if dtype == "float32" else 2
        if batch * (m * k + k * n + m * n) * size > MOST_BYTES or 2.0 * batch * m * n * k > MOST_FLOPS:
            continue
        settings: Settings = {"form": form, "batch": batch, "m": m, "n": n, "k": k, "dtype": dtype}
        if dtype == "float32" and draw.chance(0.3):
            settings["precision"] = "highest"
        if draw.chance(0.5):
            settings["tune"] = LIBRARY
        made += 1
        yield settings
