"""Sorts, ranks and the largest few: many short rows, few long ones, one of millions; keys alone and with values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import ProbeBody, ProbeChoices, Settings

COUNT = 110
MOST_ELEMENTS = 2**25
OPS = ("sort", "sort", "sort_pairs", "argsort", "sort_first", "top_k", "top_k", "approx_max_k", "median")
Spec = jax.ShapeDtypeStruct


def build(op: str, rows: int, length: int, dtype: str, k: int = 8) -> ProbeBody:
    """An op on `rows` lines of `length`; `sort_first` sorts along the rows instead."""
    x = Spec((rows, length), jnp.dtype(dtype))
    functions: dict[str, Any] = {
        "sort": lambda a: jnp.sort(a, axis=-1),
        "sort_first": lambda a: jnp.sort(a, axis=0),
        "argsort": lambda a: jnp.argsort(a, axis=-1),
        "median": lambda a: jnp.median(a, axis=-1),
        "top_k": lambda a: jax.lax.top_k(a, k),
        "approx_max_k": lambda a: jax.lax.approx_max_k(a, k),
    }
    if op == "sort_pairs":
        return ProbeBody(function=lambda a, b: jax.lax.sort((a, b), num_keys=1), args=(x, Spec(x.shape, jnp.int32)))
    return ProbeBody(function=functions[op], args=(x,))


def probes() -> Iterator[Settings]:
    """The family's list: lengths and rows log-uniform, half of them powers of two."""
    draw = ProbeChoices("ordering/1")
    made = 0
    while made < COUNT:
        op = OPS[made % len(OPS)]
        length = draw.log_uniform(4, 2**22)
        if draw.chance(0.5):
            length = 1 << (length.bit_length() - 1)
        rows = draw.pick((1, 1, draw.log_uniform(1, 2**18)))
        if not 64 <= rows * length <= MOST_ELEMENTS or (op == "sort_first" and rows == 1):
            continue
        floating = op in ("approx_max_k", "median", "top_k")
        dtype = draw.pick(("float32", "float32", "bfloat16") + (() if floating else ("int32", "uint32", "int8")))
        settings: Settings = {"op": op, "rows": rows, "length": length, "dtype": dtype}
        if op in ("top_k", "approx_max_k"):
            settings["k"] = min(length, draw.pick((1, 2, 8, 16, 40, 100, 512)))
        made += 1
        yield settings
