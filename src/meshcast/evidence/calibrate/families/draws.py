"""Random numbers: bits, distributions and what is drawn by them, by Threefry and by the device's own generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import ProbeBody, ProbeChoices, Settings

COUNT = 60
Spec = jax.ShapeDtypeStruct
OPS: dict[str, Callable[[Any, int, int], Any]] = {
    "bits": lambda key, rows, cols: jax.random.bits(key, (rows, cols)),
    "uniform": lambda key, rows, cols: jax.random.uniform(key, (rows, cols)),
    "normal": lambda key, rows, cols: jax.random.normal(key, (rows, cols)),
    "normal_bf16": lambda key, rows, cols: jax.random.normal(key, (rows, cols), jnp.bfloat16),
    "gumbel": lambda key, rows, cols: jax.random.gumbel(key, (rows, cols)),
    "bernoulli": lambda key, rows, cols: jax.random.bernoulli(key, 0.3, (rows, cols)),
    "truncated": lambda key, rows, cols: jax.random.truncated_normal(key, -2.0, 2.0, (rows, cols)),
    "exponential": lambda key, rows, cols: jax.random.exponential(key, (rows, cols)),
    "laplace": lambda key, rows, cols: jax.random.laplace(key, (rows, cols)),
    "integers": lambda key, rows, cols: jax.random.randint(key, (rows, cols), 0, 1000),
    "categorical": lambda key, rows, cols: jax.random.categorical(key, jnp.zeros((rows, cols))),
    "split": lambda key, rows, cols: jax.random.key_data(jax.random.split(key, rows * cols // 64 + 1)),
}


def build(op: str, rows: int, cols: int, generator: str) -> ProbeBody:
    """A draw of `rows` by `cols` from a key of the generator."""
    words = 4 if generator == "rbg" else 2

    def draw(data: Any) -> Any:
        return OPS[op](jax.random.wrap_key_data(data, impl=generator), rows, cols)

    return ProbeBody(function=draw, args=(Spec((words,), jnp.uint32),))


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("draws/1")
    names = list(OPS)
    for i in range(COUNT):
        cols = draw.pick((16, 100, 128, 1000, 1024, 4096))
        rows = max(1, draw.log_uniform(2**10, 2**26) // cols)
        generator = draw.pick(("threefry2x32", "threefry2x32", "threefry2x32", "rbg"))
        yield {"op": names[i % len(names)], "rows": rows, "cols": cols, "generator": generator}
