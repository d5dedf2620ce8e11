"""Measures additions of many rows to tables of few (the gradient of BERT's kinds of token) on the device that JAX finds.

    python benchmarks/few_rows.py OUT.jsonl

Types of two bytes are added by compare and swap, so that all updates of a row wait for each other. Each case is `t.at[i].add(u)`
with `count` rows of `dim` numbers and indices drawn evenly (`random`) or in order (`runs`, as kinds of token are); `us` is the
median device time of the scatter's kernel. Cases with other forms of the same question: `f32` for scale.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from device_profile import by_kernel, profiled

RUNS = 5


def cases() -> list[tuple[str, int, int, int, str]]:
    """(dtype, rows, dim, count, order) of every case."""
    found = [
        ("bfloat16", rows, dim, 4096, "random")
        for dim in (1, 2, 8, 16, 32, 64, 128, 256, 512, 768, 2048)
        for rows in (1, 2, 8, 64)
    ]
    found += [("bfloat16", rows, 768, count, "random") for rows in (1, 2) for count in (256, 1024, 16384, 65536)]
    found += [("bfloat16", 2, dim, 16384, "random") for dim in (8, 32, 64, 256)]
    found += [("bfloat16", 2, 768, count, "runs") for count in (4096, 16384)]
    found += [("float16", rows, dim, 4096, "random") for rows in (1, 2) for dim in (8, 64, 768)]
    found += [("float32", rows, dim, 4096, "random") for rows in (1, 2) for dim in (8, 64, 768)]
    found += [("bfloat16", 50000, 768, 4096, "random"), ("bfloat16", 512, 768, 4096, "random")]
    return found


def kernel_times(step: Any, args: tuple[Any, ...]) -> list[float]:
    """Microseconds of the longest kernel of every run, from JAX's profiler."""

    def runs() -> None:
        table = args[0]
        for _ in range(RUNS):
            table = step(table, *args[1:])
        jax.block_until_ready(table)

    return max(by_kernel(profiled(runs)).values(), key=sum, default=[])


def main() -> None:
    """Measures every case and appends its row."""
    out = Path(sys.argv[1])
    for dtype, rows, dim, count, order in cases():
        draw = np.random.default_rng(0)
        indices = draw.integers(0, rows, count)
        if order == "runs":
            indices.sort()
        step = jax.jit(lambda t, i, u: t.at[i].add(u), donate_argnums=0)
        table = jnp.zeros((rows, dim), dtype)
        updates = jnp.asarray(draw.standard_normal((count, dim), dtype=np.float32)).astype(dtype)
        index = jnp.asarray(indices, jnp.int32)
        table = jax.block_until_ready(step(table, index, updates))
        times = kernel_times(step, (table, index, updates))
        row = {"dtype": dtype, "rows": rows, "dim": dim, "count": count, "order": order}
        row |= {"us": statistics.median(times) if times else None}
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main()
