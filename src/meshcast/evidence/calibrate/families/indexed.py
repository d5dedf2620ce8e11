"""Tables read and written by index, sorts, top-k: what depends on values as well as on shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import Indices, ProbeBody, ProbeChoices, Settings

COUNT = 150
MOST_BYTES = 4e9
Spec = jax.ShapeDtypeStruct

_TABLES = ("take", "take_sum", "take_sum_grad", "scatter_add", "scatter_set", "take_grad", "take_along")
_SORTS = ("sort", "sort_pairs", "argsort", "top_k", "sort_first")
OPS = (*_TABLES, *_TABLES, "one_hot", *_SORTS)


def _table(op: str, rows: int, dim: int, count: int, pool: int, skew: float, dtype: Any) -> ProbeBody:
    table = Spec((rows, dim), dtype)
    shape = (count, pool) if pool > 1 else (count,)
    picked = Spec(shape, jnp.int32)
    drawn = Indices(below=rows, skew=skew)
    update = Spec((*shape, dim), dtype)

    def bag(table: Any, indices: Any) -> Any:
        found = jnp.take(table, indices, axis=0)
        return found.sum(1) if found.ndim == 3 else found

    if op in ("take", "take_sum"):
        function = bag if op == "take_sum" else lambda t, i: jnp.take(t, i, axis=0)
        return ProbeBody(function=function, args=(table, picked), indices={1: drawn})
    if op in ("take_grad", "take_sum_grad"):

        def gradient(cotangent: Any, indices: Any) -> Any:
            zeros = jnp.zeros(table.shape, table.dtype)
            spread = cotangent[:, None] if op == "take_sum_grad" and pool > 1 else cotangent
            return zeros.at[indices].add(jnp.broadcast_to(spread, update.shape))

        given = Spec((count, dim), dtype) if op == "take_sum_grad" else update
        return ProbeBody(function=gradient, args=(given, picked), indices={1: drawn})
    if op == "take_along":
        return ProbeBody(
            function=lambda t, i: jnp.take_along_axis(t, i[:, None], axis=-1)[:, 0],
            args=(Spec((count, dim), dtype), Spec((count,), jnp.int32)),
            indices={1: Indices(below=dim)},
        )
    add = op == "scatter_add"
    return ProbeBody(
        function=lambda t, i, u: (t.at[i].add(u) if add else t.at[i].set(u),),
        args=(table, picked, update),
        donate=(0,),
        indices={1: drawn},
    )


def _sorted(op: str, rows: int, length: int, dtype: Any) -> ProbeBody:
    x = Spec((rows, length), dtype)
    if op == "sort_pairs":
        return ProbeBody(function=lambda a, b: jax.lax.sort((a, b), num_keys=1), args=(x, Spec(x.shape, jnp.int32)))
    if op == "argsort":
        return ProbeBody(function=lambda a: jnp.argsort(a, axis=-1), args=(x,))
    if op == "top_k":
        return ProbeBody(function=lambda a: jax.lax.top_k(a, min(8, length)), args=(x,))
    return ProbeBody(function=lambda a: jnp.sort(a, axis=0 if op == "sort_first" else -1), args=(x,))


def build(op: str, rows: int, dim: int, dtype: str, count: int = 1, pool: int = 1, skew: float = 0.0) -> ProbeBody:
    """A table of `rows` by `dim` and `count` x `pool` indices, or sorts of `rows` lines of `dim`."""
    kind = jnp.dtype(dtype)
    if op in _SORTS:
        return _sorted(op, rows, dim, kind)
    if op == "one_hot":
        return ProbeBody(
            function=lambda i: jax.nn.one_hot(i, dim, dtype=kind),
            args=(Spec((rows,), jnp.int32),),
            indices={0: Indices(below=dim)},
        )
    return _table(op, rows, dim, count, pool, float(skew), kind)


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("indexed/1")
    made = 0
    while made < COUNT:
        op = OPS[made % len(OPS)]
        dtype = draw.pick(("bfloat16", "float32", "float32"))
        if op in _SORTS:
            settings: Settings = {
                "op": op,
                "rows": draw.log_uniform(1, 65536),
                "dim": draw.log_uniform(16, 262144),
                "dtype": dtype,
            }
            if not 1024 <= int(settings["rows"]) * int(settings["dim"]) <= 2**25:
                continue
        elif op == "one_hot":
            settings = {
                "op": op,
                "rows": draw.log_uniform(64, 65536),
                "dim": draw.log_uniform(8, 65536),
                "dtype": dtype,
            }
            if int(settings["rows"]) * int(settings["dim"]) > 2**28:
                continue
        else:
            settings = {
                "op": op,
                "rows": draw.log_uniform(1000, 10_000_000),
                "dim": draw.pick((16, 32, 64, 128, 256, 768, 1024, 4096)),
                "dtype": dtype,
                "count": draw.log_uniform(64, 65536),
                "pool": draw.pick((1, 1, 1, 8, 32)),
                "skew": draw.pick((0.0, 0.0, 1.05, 1.2)),
            }
            dim, size = int(settings["dim"]), 2 if dtype == "bfloat16" else 4
            if dim * size * (int(settings["rows"]) + 2 * int(settings["count"]) * int(settings["pool"])) > MOST_BYTES:
                continue
        made += 1
        yield settings
