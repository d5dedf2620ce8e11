"""Pieces put together and taken apart: concatenations of many, pads between elements, rolls, windows, blocks at run time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import Indices, ProbeBody, ProbeChoices, Settings

COUNT = 120
MOST_ELEMENTS = 2**27
Spec = jax.ShapeDtypeStruct
START = Spec((), jnp.int32)


def _windows(x: Any, width: int) -> Any:
    """Overlapping windows of a row, as frames of a signal are cut: (rows, count, width)."""
    step = max(1, width // 2)
    starts = jnp.arange(0, x.shape[-1] - width + 1, step)
    return x[:, starts[:, None] + jnp.arange(width)[None, :]]


# Of a matrix and a number of pieces.
OPS: dict[str, Callable[[Any, int], Any]] = {
    "concatenate": lambda x, n: jnp.concatenate([x * (i + 1) for i in range(n)], axis=-1),
    "concatenate_rows": lambda x, n: jnp.concatenate([x * (i + 1) for i in range(n)], axis=0),
    "stack_last": lambda x, n: jnp.stack([x + i for i in range(n)], axis=-1),
    "stack_first": lambda x, n: jnp.stack([x + i for i in range(n)], axis=0),
    "rotate_half": lambda x, n: jnp.concatenate([-x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], axis=-1) * 2,
    "shifted_sum": lambda x, n: sum((jnp.roll(x, i, axis=-1) for i in range(n)), jnp.zeros_like(x)),
    "stencil": lambda x, n: sum((jnp.roll(x, (i, -i), axis=(0, 1)) for i in range(n)), jnp.zeros_like(x)),
    "wrap_pad": lambda x, n: jnp.pad(x, ((n, n), (n, n)), mode="wrap"),
    "reflect_pad": lambda x, n: jnp.pad(x, ((n, n), (n, n)), mode="reflect"),
    "edge_pad": lambda x, n: jnp.pad(x, ((n, n), (n, n)), mode="edge"),
    "interior_pad": lambda x, n: jax.lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, n - 1), (0, 0, n - 1))),
    "reverse": lambda x, n: x[::-1, ::-1] * n,
    "windows": lambda x, n: _windows(x, 16 * n),
    "repeat": lambda x, n: jnp.repeat(x, n, axis=-1),
    "tile": lambda x, n: jnp.tile(x, (n, 1)),
    "outer": lambda x, n: x[:, :, None] * x[:, None, :n],
    "triangle": lambda x, n: jnp.tril(x, k=n),
    "one_hot": lambda x, n: jax.nn.one_hot((x[:, 0] * 100).astype(jnp.int32), x.shape[1], dtype=x.dtype),
    "differences": lambda x, n: jnp.diff(x, n=min(n, 3), axis=-1),
    "strided": lambda x, n: x[:, ::n] + 1,
}
AT_RUN_TIME = ("block", "write_block", "write_rows")


def build(op: str, rows: int, cols: int, n: int, dtype: str) -> ProbeBody:
    """An op of the table on a matrix, or a block of it that begins where an argument says."""
    x = Spec((rows, cols), jnp.dtype(dtype))
    if op not in AT_RUN_TIME:
        return ProbeBody(function=lambda a: OPS[op](a, n), args=(x,))
    below = {1: Indices(below=max(1, cols // 2))}
    if op == "block":
        part = (rows, max(1, cols // 2))
        return ProbeBody(
            function=lambda a, i: jax.lax.dynamic_slice(a, (0, i), part) * 2, args=(x, START), indices=below
        )
    part = (rows, max(1, cols // 4)) if op == "write_block" else (max(1, rows // 4), cols)

    def write(a: Any, i: Any, b: Any) -> Any:
        return (jax.lax.dynamic_update_slice(a, b, (0, i) if op == "write_block" else (i % rows, 0)),)

    return ProbeBody(function=write, args=(x, START, Spec(part, x.dtype)), donate=(0,), indices=below)


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("joins/1")
    names = [*OPS, *AT_RUN_TIME]
    made = 0
    while made < COUNT:
        op = names[made % len(names)]
        cols = draw.pick((64, 100, 128, 256, 1000, 1024, 4096, draw.log_uniform(64, 2**14)))
        rows = draw.log_uniform(64, 2**18)
        n = draw.pick((2, 2, 3, 4, 8))
        grown = (
            n
            if op in ("concatenate", "concatenate_rows", "stack_last", "stack_first", "repeat", "tile", "outer")
            else 1
        )
        grown = n * n if op == "interior_pad" else 2 if op == "windows" else grown
        if math.prod((rows, cols, grown)) > MOST_ELEMENTS or rows * cols < 4096 or (op == "windows" and cols < 16 * n):
            continue
        made += 1
        yield {"op": op, "rows": rows, "cols": cols, "n": n, "dtype": draw.pick(("float32", "bfloat16"))}
