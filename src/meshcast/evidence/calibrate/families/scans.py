"""Running sums, products, maxima and linear recurrences, along rows and along columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import ProbeBody, ProbeChoices, Settings

COUNT = 60
MOST_ELEMENTS = 2**25
Spec = jax.ShapeDtypeStruct


def _joined(left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
    """Composition of two steps `h -> a h + b`."""
    return left[0] * right[0], right[0] * left[1] + right[1]


ONE: dict[str, Callable[[Any, int], Any]] = {
    "cumsum": lambda x, axis: jnp.cumsum(x, axis=axis),
    "cumsum_reverse": lambda x, axis: jax.lax.cumsum(x, axis=axis, reverse=True),
    "cumprod": lambda x, axis: jnp.cumprod(x, axis=axis),
    "cummax": lambda x, axis: jax.lax.cummax(x, axis=axis),
    "cumlogsumexp": lambda x, axis: jax.lax.cumlogsumexp(x, axis=axis),
}
OPS = (*ONE, "recurrence")


def build(op: str, rows: int, length: int, axis: int, dtype: str) -> ProbeBody:
    """A scan of a matrix of `rows` by `length` along an axis."""
    x = Spec((rows, length), jnp.dtype(dtype))
    if op == "recurrence":
        return ProbeBody(function=lambda a, b: jax.lax.associative_scan(_joined, (a, b), axis=axis)[1], args=(x, x))
    return ProbeBody(function=lambda a: ONE[op](a, axis), args=(x,))


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("scans/1")
    made = 0
    while made < COUNT:
        op = OPS[made % len(OPS)]
        length, rows = draw.log_uniform(8, 2**18), draw.pick((1, draw.log_uniform(1, 2**16)))
        axis = draw.pick((0, 1, 1))
        scanned = length if axis else rows
        if not 256 <= rows * length <= MOST_ELEMENTS or scanned < 8 or (op == "cumlogsumexp" and scanned > 4096):
            continue
        made += 1
        dtype = "float32" if op in ("cumlogsumexp", "recurrence") else draw.pick(("float32", "bfloat16", "int32"))
        yield {"op": op, "rows": rows, "length": length, "axis": axis, "dtype": dtype}
