"""Measures what XLA's emitters make of columns, rows and transposes, on the device that JAX finds.

    python benchmarks/emitters.py OUT.jsonl

Three kinds of case, each one fusion: `columns` adds up columns, with (`kept`) and without the results of its elements;
`rows` is a softmax, masked or not, or a normalisation, which Triton's programs hold in registers; `transposed` turns what a
few operations give, of several ranks and numbers of results. A line of JSON a case: its sizes, the kernels that ran, each with
its median microseconds a run, and what the compiled text says of their tiles. XLA's CUDA graphs are off: every kernel then has
its name.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="

import jax
import jax.numpy as jnp
import numpy as np
from device_profile import by_kernel, profiled

RUNS = 5
Case = tuple[dict[str, Any], Callable[..., Any], tuple[Any, ...]]


def numbers(*shape: int, dtype: str) -> Any:
    """Normally distributed ones."""
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape, dtype=np.float32)).astype(dtype)


def columns() -> Iterator[Case]:
    """Sums down columns; kept: what is added up is a result too."""
    for dtype in ("float32", "bfloat16"):
        for rows, width in ((256, 256), (1024, 256), (3136, 160), (3136, 960), (4096, 4096), (16384, 64)):
            x = numbers(rows, width, dtype=dtype)
            for what in ("plain", "kept", "kept sigmoid"):

                def run(x: Any, what: str = what) -> Any:
                    y = x.astype(jnp.float32)
                    y = y * jax.nn.sigmoid(y) if "sigmoid" in what else y * 1.5
                    total = jnp.sum(y, axis=0)
                    return total if what == "plain" else (total, y.astype(x.dtype))

                yield {"kind": "columns", "dtype": dtype, "rows": rows, "width": width, "what": what}, run, (x,)


def rows() -> Iterator[Case]:
    """Softmaxes and normalisations of rows."""
    for dtype in ("float32", "bfloat16"):
        for count, length in ((64, 1024), (32768, 256), (32768, 1024), (16384, 2048), (8192, 4096)):
            x = numbers(count, length, dtype=dtype)
            for what in ("softmax", "masked softmax", "layer norm", "two norms"):

                def run(x: Any, what: str = what) -> Any:
                    y = x.astype(jnp.float32)
                    if what == "masked softmax":
                        at = jax.lax.broadcasted_iota(jnp.int32, y.shape, 1)
                        row = jax.lax.broadcasted_iota(jnp.int32, y.shape, 0) % y.shape[1]
                        y = jnp.where(at <= row, y, -1e30)
                    if "softmax" in what:
                        y = jnp.exp(y - y.max(-1, keepdims=True))
                        return (y / y.sum(-1, keepdims=True)).astype(x.dtype)
                    for _ in range(2 if what == "two norms" else 1):
                        mean = y.mean(-1, keepdims=True)
                        y = (y - mean) * jax.lax.rsqrt(((y - mean) ** 2).mean(-1, keepdims=True) + 1e-6)
                    return y.astype(x.dtype)

                yield {"kind": "rows", "dtype": dtype, "count": count, "length": length, "what": what}, run, (x,)


def transposed() -> Iterator[Case]:
    """Transposes behind arithmetic."""
    for dtype in ("float32", "bfloat16"):
        for shape, order in (
            ((256, 256), (1, 0)),
            ((4096, 4096), (1, 0)),
            ((8, 512, 8, 64), (0, 2, 3, 1)),
            ((8, 512, 8, 64), (0, 2, 1, 3)),
            ((8, 1024, 16, 64), (0, 2, 3, 1)),
        ):
            x = numbers(*shape, dtype=dtype)
            for what in ("one", "exponentials", "halves joined", "three results"):

                def run(x: Any, what: str = what, order: tuple[int, ...] = order) -> Any:
                    y = x.astype(jnp.float32) * 1.5
                    if what == "exponentials":
                        y = jnp.exp(y) + jnp.exp(-y) / (1 + y * y)
                    if what == "halves joined":
                        left, right = jnp.split(y, 2, axis=-1)
                        y = jnp.concatenate([left * 2 - right, right * 2 + left], axis=-1)
                    found = [(y + each).astype(x.dtype).transpose(order) for each in range(3)]
                    return found if what == "three results" else found[0]

                yield {"kind": "transposed", "dtype": dtype, "shape": shape, "order": order, "what": what}, run, (x,)


def kernel_times(step: Any, args: tuple[Any, ...]) -> dict[str, float]:
    """Microseconds of every kernel a run, from JAX's profiler: medians over runs."""

    def runs() -> None:
        for _ in range(RUNS):
            jax.block_until_ready(step(*args))

    found = by_kernel(profiled(runs))
    return {name: round(statistics.median(times) * len(times) / RUNS, 3) for name, times in found.items()}


def main() -> None:
    """Measures every case and appends its row."""
    out = Path(sys.argv[1])
    for row, run, args in (*columns(), *rows(), *transposed()):
        compiled = jax.jit(run).lower(*args).compile()
        jax.block_until_ready(compiled(*args))
        row["us"] = kernel_times(compiled, args)
        fusions = [line for line in (compiled.as_text() or "").splitlines() if " fusion(" in line]
        row["fusions"] = [
            {
                "name": line.split("=")[0].strip().removeprefix("ROOT ").strip("% "),
                "kind": found[1] if (found := re.search(r"kind=(\w+)", line)) else "",
                "tiles": re.findall(r'"sizes":\[([^\]]*)\]', line),
                "warps": re.findall(r'"num_warps":"(\d+)"', line),
            }
            for line in fusions
        ]
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
