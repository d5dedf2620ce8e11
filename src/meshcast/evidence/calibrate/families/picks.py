"""Elements, rows and blocks read and written by index: all slice sizes, several index columns, updates that meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import Indices, ProbeBody, ProbeChoices, Settings

COUNT = 150
MOST_BYTES = 1e9
# Updates that one place may get. They wait for each other, and those by compare and swap (2-byte types, all but sums) for longer
# the more there are: three million bf16 numbers written to two places take an H200 165 s.
MOST_MET, MOST_SWAPPED = 2**17, 2**12
ADDING = frozenset({"segment_sum", "scatter_add", "scatter_pairs", "histogram"})
Spec = jax.ShapeDtypeStruct
READS = ("take", "take_flat", "take_pairs", "take_columns", "take_along", "interpolate")
SEGMENTS: dict[str, Callable[..., Any]] = {
    "segment_sum": jax.ops.segment_sum,
    "segment_max": jax.ops.segment_max,
    "segment_prod": jax.ops.segment_prod,
}
WRITES = ("scatter_add", "scatter_set", "scatter_max", "histogram", "scatter_pairs")
OPS = (*READS, *SEGMENTS, *WRITES)


def build(op: str, rows: int, dim: int, count: int, dtype: str, skew: float = 0.0) -> ProbeBody:
    """`count` picks from, or updates of, a table of `rows` by `dim`."""
    kind = jnp.dtype(dtype)
    table, index = Spec((rows, dim), kind), Spec((count,), jnp.int32)
    of_rows, of_columns = Indices(below=rows, skew=float(skew)), Indices(below=dim)
    update = Spec((count, dim), kind)
    if op in SEGMENTS:
        return ProbeBody(
            function=lambda u, i: SEGMENTS[op](u, i, num_segments=rows), args=(update, index), indices={1: of_rows}
        )
    if op == "take":
        return ProbeBody(function=lambda t, i: t[i] * 2, args=(table, index), indices={1: of_rows})
    if op == "take_columns":
        return ProbeBody(function=lambda t, i: t[:, i], args=(table, index), indices={1: of_columns})
    if op == "take_flat":
        flat = Indices(below=rows * dim, skew=float(skew))
        return ProbeBody(function=lambda t, i: t.reshape(-1)[i], args=(table, index), indices={1: flat})
    if op == "take_pairs":
        return ProbeBody(
            function=lambda t, i, j: t[i, j], args=(table, index, index), indices={1: of_rows, 2: of_columns}
        )
    if op == "take_along":
        return ProbeBody(
            function=lambda t, i: jnp.take_along_axis(t, i, axis=-1),
            args=(table, Spec((rows, max(1, count // rows)), jnp.int32)),
            indices={1: of_columns},
        )
    if op == "interpolate":
        return ProbeBody(
            function=lambda t, i: 0.5 * (t[i] + t[jnp.minimum(i + 1, rows - 1)]),
            args=(table, index),
            indices={1: of_rows},
        )
    if op == "histogram":
        return ProbeBody(
            function=lambda i: jnp.zeros((rows,), jnp.float32).at[i].add(1.0), args=(index,), indices={0: of_rows}
        )
    if op == "scatter_pairs":
        return ProbeBody(
            function=lambda t, i, j, u: (t.at[i, j].add(u),),
            args=(table, index, index, Spec((count,), kind)),
            donate=(0,),
            indices={1: of_rows, 2: of_columns},
        )

    def write(t: Any, i: Any, u: Any) -> Any:
        at = t.at[i]
        return (at.add(u) if op == "scatter_add" else at.max(u) if op == "scatter_max" else at.set(u),)

    return ProbeBody(function=write, args=(table, index, update), donate=(0,), indices={1: of_rows})


def probes() -> Iterator[Settings]:
    """The family's list: slices of 1 to 4,096 elements, tables of a few rows to millions."""
    draw = ProbeChoices("picks/1")
    made = 0
    while made < COUNT:
        op = OPS[made % len(OPS)]
        dim = draw.pick((1, 2, 3, 4, 8, 16, 32, 64, 100, 128, 256, 1024, 4096))
        rows, count = draw.log_uniform(2, 2**22), draw.log_uniform(64, 2**22)
        if op == "take_columns" and dim < 8:
            continue
        moved = max(
            rows * dim, count * (rows if op == "take_columns" else 1 if "pairs" in op or op == "take_flat" else dim)
        )
        if moved * 4 > MOST_BYTES or (op == "take_along" and count < rows):
            continue
        dtype = draw.pick(("float32", "float32", "bfloat16"))
        settings: Settings = {"op": op, "rows": rows, "dim": dim, "count": count, "dtype": dtype}
        if op not in ("take_columns", "take_along") and draw.chance(0.2):
            settings["skew"] = draw.pick((0.5, 0.9, 1.2))
        if op not in READS and _meeting(settings) > (MOST_MET if op in ADDING and dtype == "float32" else MOST_SWAPPED):
            continue
        made += 1
        yield settings


def _meeting(settings: Settings) -> float:
    """About how many updates the busiest place gets: an even share, or a fifth of all by Zipf's law."""
    rows, count = int(settings["rows"]), int(settings["count"])
    return count / rows if "skew" not in settings else count / min(rows, 5)
