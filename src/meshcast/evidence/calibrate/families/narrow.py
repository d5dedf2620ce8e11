"""Reductions over few elements, over odd axes and to few results: what neither fills a warp nor a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import ProbeBody, ProbeChoices, Settings

COUNT = 150
MOST_ELEMENTS = 2**27
Spec = jax.ShapeDtypeStruct
OPS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, axes: jnp.sum(x, axis=axes),
    "max": lambda x, axes: jnp.max(x, axis=axes),
    "prod": lambda x, axes: jnp.prod(x, axis=axes),
    "any": lambda x, axes: jnp.any(x > 0.01, axis=axes),
    "count": lambda x, axes: jnp.sum(x > 0.01, axis=axes),
    "argmax": lambda x, axes: jnp.argmax(x, axis=axes[0]),
    "argmin": lambda x, axes: jnp.argmin(x, axis=axes[0]),
    "logsumexp": lambda x, axes: jax.nn.logsumexp(x, axis=axes),
    "softmax": lambda x, axes: jax.nn.softmax(x, axis=axes),
    "norm": lambda x, axes: jnp.sqrt(jnp.sum(x * x, axis=axes)),
    "moments": lambda x, axes: (x.mean(axes), x.var(axes)),
    "minmax": lambda x, axes: (jnp.min(x, axis=axes), jnp.max(x, axis=axes)),
    "distance": lambda x, axes: jnp.sum((x - jnp.mean(x, axes, keepdims=True)) ** 2, axis=axes),
}


def build(op: str, shape: str, axes: str, dtype: str) -> ProbeBody:
    """A reduction of a shape such as `4096x3x7` over axes such as `d1-2`."""
    sizes, over = tuple(map(int, shape.split("x"))), tuple(map(int, axes[1:].split("-")))
    return ProbeBody(function=lambda x: OPS[op](x, over), args=(Spec(sizes, jnp.dtype(dtype)),))


def probes() -> Iterator[Settings]:
    """The family's list: the reduced extent is small in two cases of three."""
    draw = ProbeChoices("narrow/1")
    names = list(OPS)
    made = 0
    while made < COUNT:
        few = draw.pick((2, 3, 4, 5, 7, 8, 10, 16, 17, 24, 32, 48, 64, 100, 128))
        many = draw.log_uniform(16, 2**22)
        mid = draw.pick((1, 2, 3, 7, 16, 49, 64, 196, 256))
        form = draw.pick(("last", "last", "first", "middle", "both", "outer"))
        shape, axes = {
            "last": ((many, few), (1,)),
            "first": ((few, many), (0,)),
            "middle": ((many // mid + 1, few, mid), (1,)),
            "both": ((many // mid + 1, few, mid), (1, 2)),
            "outer": ((many, few, mid), (0,)),
        }[form]
        if not 256 <= math.prod(shape) <= MOST_ELEMENTS:
            continue
        settings: Settings = {
            "op": names[made % len(names)],
            "shape": "x".join(map(str, shape)),
            "axes": "d" + "-".join(map(str, axes)),
            "dtype": draw.pick(("float32", "float32", "bfloat16")),
        }
        made += 1
        yield settings
