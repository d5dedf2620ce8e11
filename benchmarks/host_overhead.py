"""Measures what the host spends per run, per kernel by kind, per argument and per loop iteration, on JAX's device.

    python benchmarks/host_overhead.py > host.jsonl
    python benchmarks/host_overhead.py --loops > loops.jsonl      # what a turn takes by what is in it, and convolutions by type

Every program is far too small to keep the device busy, so the wall time of back-to-back runs is the host's. `count` is how many
there are of what is asked about, of loops their turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

AVERAGED_S = 0.1  # of one average over runs
COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128)


def wall_us(compiled: Callable[..., Any], *args: Any) -> float:
    """Median of five averages over back-to-back runs, so many that a wait at their end is lost among them."""
    start = time.perf_counter()
    for _ in range(20):
        out = compiled(*args)
    jax.block_until_ready(out)
    runs = max(10, min(200, int(20 * AVERAGED_S / (time.perf_counter() - start))))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(runs):
            out = compiled(*args)
        jax.block_until_ready(out)
        times.append((time.perf_counter() - start) / runs)
    return statistics.median(times) * 1e6


def chain(step: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    """`count` steps that the compiler cannot fuse."""

    def run(x: Any) -> Any:
        for _ in range(count):
            x = lax.optimization_barrier(step(x))
        return x

    return run


def in_loop(step: Callable[[Any], Any], turns: int, *, stacked: bool = False) -> Callable[[Any], Any]:
    """A loop of so many turns of a step, which also writes what it carries into a stack where that is asked for."""

    def run(x: Any) -> Any:
        def turn(carried: Any, _: Any) -> tuple[Any, Any]:
            made = step(carried)
            return made, (made if stacked else None)

        return lax.scan(turn, x, None, length=turns)

    return run


def loops() -> Iterator[tuple[str, int, Callable[..., Any], tuple[Any, ...]]]:
    """Loops by what their turns launch, and convolutions alone: (what, turns or how many, function, arguments)."""
    vector = jnp.ones((4096,), jnp.float32)
    for width in (1, 2, 3, 4, 6, 8, 16, 32):
        for turns in (32, 128):
            yield f"turn-of-{width}", turns, in_loop(chain(lambda x: jnp.sin(x) * 1.5, width), turns), (vector,)
    for width in (1, 3, 8):
        stack = in_loop(chain(lambda x: jnp.sin(x) * 1.5, width), 64, stacked=True)
        yield f"stacking-turn-of-{width}", 64, stack, (vector,)
    for width in (1, 2, 4):
        body = chain(lambda x: x @ x, width)
        yield f"turn-of-{width}-products", 64, in_loop(body, 64), (jnp.eye(256, dtype=jnp.float32),)
    for kind in (jnp.float32, jnp.bfloat16, jnp.float16):
        image = jnp.ones((8, 16, 16, 64), kind)
        name = jnp.dtype(kind).name
        for count in (4, 16, 32):
            yield f"convolutions-{name}", count, chain(convolution, count), (image,)
        for width in (1, 2, 4):
            yield f"turn-of-{width}-convolutions-{name}", 32, in_loop(chain(convolution, width), 32), (image,)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", action="store_true", help="loops and convolutions instead")
    asked = parser.parse_args()
    for what, count, function, arguments in loops() if asked.loops else programs():
        jitted = jax.jit(function, keep_unused=True)
        compiled = jitted.lower(*arguments).compile()
        text = compiled.as_text()
        launches = sum(text.count(f" {op}(") for op in ("fusion", "custom-call", "copy", "dot", "convolution"))
        row = {"what": what, "count": count, "wall_us": round(wall_us(jitted, *arguments), 2), "launches": launches}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
