"""Measures what the host spends per run, per kernel by kind, per argument and per loop iteration, on JAX's device.

    python benchmarks/host_overhead.py > host.jsonl

Every program is far too small to keep the device busy, so the wall time of back-to-back runs is the host's.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128)


def wall_us(compiled: Callable[..., Any], *args: Any) -> float:
    """Median of five averages over back-to-back runs."""
    for _ in range(20):
        out = compiled(*args)
    jax.block_until_ready(out)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(200):
            out = compiled(*args)
        jax.block_until_ready(out)
        times.append((time.perf_counter() - start) / 200)
    return statistics.median(times) * 1e6


def chain(step: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    """`count` steps that the compiler cannot fuse."""

    def run(x: Any) -> Any:
        for _ in range(count):
            x = lax.optimization_barrier(step(x))
        return x

    return run


def convolution(x: Any) -> Any:
    """A small convolution whose filter depends on its input, so that nothing is folded away."""
    kernel = jnp.ones((3, 3, 64, 64), x.dtype) * x[0, 0, 0, 0]
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def programs() -> Iterator[tuple[str, int, Callable[..., Any], tuple[Any, ...]]]:
    """(what, how many, function, arguments)."""
    vector = jnp.ones((4096,), jnp.float32)
    for n in COUNTS:
        yield "elementwise", n, chain(lambda x: jnp.sin(x) * 1.5, n), (vector,)
    for n in COUNTS[:-2]:
        yield "gemm", n, chain(lambda x: x @ x, n), (jnp.eye(1024, dtype=jnp.bfloat16),)
    for n in COUNTS[:-3]:
        yield "reduction", n, chain(lambda x: x - jnp.sum(x, axis=0, keepdims=True), n), (jnp.ones((512, 512)),)
    for n in (1, 2, 4, 8, 16, 32):
        yield "convolution", n, chain(convolution, n), (jnp.ones((8, 16, 16, 64), jnp.bfloat16),)
    for n in (1, 4, 16, 64, 256, 1024):
        many = [jnp.ones((16,), jnp.float32) for _ in range(n)]
        yield "arguments", n, lambda *xs: xs[0] + 1, tuple(many)
        yield "outputs", n, lambda x, n=n: [x + i for i in range(n)], (many[0],)
    for n in (4, 16, 64, 256):
        for width in (1, 4):
            body = chain(lambda x: jnp.sin(x) * 1.5, width)
            yield (
                f"scan-of-{width}",
                n,
                lambda x, n=n, body=body: lax.scan(lambda c, _: (body(c), None), x, None, length=n)[0],
                (vector,),
            )


def main() -> None:
    """One JSON line a program."""
    for what, count, function, arguments in programs():
        jitted = jax.jit(function, keep_unused=True)
        compiled = jitted.lower(*arguments).compile()
        text = compiled.as_text()
        launches = sum(text.count(f" {op}(") for op in ("fusion", "custom-call", "copy", "dot", "convolution"))
        row = {"what": what, "count": count, "wall_us": round(wall_us(jitted, *arguments), 2), "launches": launches}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
