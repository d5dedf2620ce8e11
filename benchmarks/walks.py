"""Writes a folder of programs for `benchmarks/corpus/measure.py`: how kernels walk over what they read, and products of f32.

    python -m benchmarks.walks FOLDER
    python benchmarks/corpus/measure.py FOLDER OUT --seconds 230 --compile-seconds 140

A program is one computation that XLA makes one kernel or a few of, by kinds:

 - `rows`: loops over rows of odd length, with factors of rows, of columns and of both;
 - `joined`: pieces of odd rows joined along either dimension;
 - `picked`: rows of a table picked by indices, written in another order than they lie in, and with factors;
 - `turned`: transposes with short dimensions, which XLA has Triton compile where that wins;
 - `complex`: functions of complex numbers;
 - `sums`: sums over short dimensions that are not the innermost, kept with what they are summed of or not;
 - `products`: products of f32, at the default precision and at the highest, whose rows are odd or not, batched or not.

The id says all. Part `apart`, every second one by the SHA-256 of its id, is for judging what is set with the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.folders import Case, write_folder


def array(*shape: int, dtype: str = "float32") -> Any:
    """An argument."""
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def named(kind: str, *parts: object) -> str:
    """An id."""
    return "-".join([kind, *("x".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in parts)])


def rows() -> Iterator[Case]:
    """Loops over rows."""
    factors = {
        "square": lambda x, r, c: x * x,
        "rows": lambda x, r, c: x * x * r[:, None],
        "columns": lambda x, r, c: x * x * c[None, :],
        "both": lambda x, r, c: jnp.exp(x) * r[:, None] + c[None, :],
    }
    for dtype, widths in (("float32", (257, 768, 769, 1023)), ("bfloat16", (769,))):
        for width in widths:
            count = 64 * (295_680 // width)
            for what, run in factors.items():
                yield Case(
                    named("rows", dtype, count, width, what),
                    run,
                    [array(count, width, dtype=dtype), array(count, dtype=dtype), array(width, dtype=dtype)],
                )
    for width in (512, 769):  # factors of groups of rows, which are views of more dimensions

        def grouped(x: Any, r: Any) -> Any:
            return (x.reshape(64, 385, -1) ** 2 * r[None, :, None]).reshape(x.shape)

        yield Case(named("rows", "float32", 24640, width, "grouped"), grouped, [array(24640, width), array(385)])


def joined() -> Iterator[Case]:
    """Joins."""
    for count, width in ((3120, 259), (3120, 256), (86 * 96, 130), (20000, 7)):
        for pieces in (2, 3, 6) if width == 259 else (3,):
            for dim in (0, 1):

                def run(*x: Any, dim: int = dim) -> Any:
                    return jnp.concatenate(x, dim)

                yield Case(named("joined", (count, width), pieces, dim), run, [array(count, width)] * pieces)


def picked() -> Iterator[Case]:
    """Rows picked by indices."""
    for table, sides, count in (
        ((4096, 16, 32), 1, 98304),
        ((4096, 4, 8), 1, 98304),
        ((4096, 1, 64), 1, 262144),
        ((4096, 1, 3), 1, 2097152),
        ((131072, 4, 32), 1, 98304),
        ((131072, 1, 3), 1, 2097152),
    ):
        orders = ((0, 1, 2), (2, 0, 1), (1, 2, 0), (1, 0, 2), (2, 1, 0)) if table[1] > 1 else ((0, 1, 2), (1, 2, 0))
        for order in orders:

            def run(x: Any, at: Any, order: tuple[int, ...] = order) -> Any:
                return jnp.take(x, at, axis=0, mode="clip").transpose(order) * 1.5

            indices = jax.ShapeDtypeStruct((count // sides,), jnp.int32)
            yield Case(named("picked", table, count, order), run, [array(*table), indices], below={1: table[0]})

    def spread(x: Any, at: Any, y: Any) -> Any:
        return jnp.take(x, at, axis=0, mode="clip").transpose(2, 1, 0)[:, None, :, :] * y[:, :, None, :]

    for inner in (16, 4):
        yield Case(
            named("picked", "spread", inner),
            spread,
            [array(4096, inner, 32), jax.ShapeDtypeStruct((24576,), jnp.int32), array(32, inner, 24576)],
            below={1: 4096},
        )


def turned() -> Iterator[Case]:
    """Transposes of short dimensions."""
    for shape, order in (
        ((98304, 32, 9), (1, 0, 2)),
        ((98304, 32, 9), (0, 2, 1)),
        ((98304, 32, 9), (2, 1, 0)),
        ((98304, 9, 32), (2, 0, 1)),
        ((32, 98304, 9), (1, 2, 0)),
        ((4096, 24, 2, 9, 32), (4, 0, 1, 2, 3)),
        ((32, 4096, 24, 2, 9), (1, 2, 3, 4, 0)),
        ((32, 24576, 9, 9), (1, 0, 3, 2)),
        ((24576, 2, 16, 3, 16), (1, 0, 4, 2, 3)),
        ((64, 385, 256, 2), (2, 0, 3, 1)),
        ((256, 64, 2, 385), (1, 3, 0, 2)),
        ((131072, 3, 16), (2, 0, 1)),
        ((1024, 1024, 5), (1, 0, 2)),
    ):
        for what in ("plain", "scaled"):

            def run(x: Any, order: tuple[int, ...] = order, what: str = what) -> Any:
                return x.transpose(order) if what == "plain" else jnp.tanh(x).transpose(order) * 2 + 1

            yield Case(named("turned", shape, order, what), run, [array(*shape)])


def complexes() -> Iterator[Case]:
    """Functions of complex numbers."""
    functions = {
        "magnitude": jnp.abs,
        "squared": lambda z: z.real**2 + z.imag**2,
        "product": lambda z: z * z * z,
        "quotient": lambda z: 1 / z,
        "exponential": jnp.exp,
        "root": jnp.sqrt,
        "conjugate": lambda z: z * z.conj(),
        "scaled": lambda z: z * 1.5 + 2,
        "angle": jnp.angle,
    }
    for count, width in ((4096, 1024), (4096, 1025)):
        for what, run in functions.items() if not width % 2 else list(functions.items())[:4]:
            yield Case(named("complex", (count, width), what), run, [array(count, width, dtype="complex64")])


def sums() -> Iterator[Case]:
    """Sums over short dimensions."""
    for shape, dim in (
        ((98304, 16, 16), 1),
        ((98304, 16, 16), 2),
        ((8, 98304, 16, 16), 2),
        ((98304, 3, 64), 1),
        ((16, 1048576), 0),
        ((4, 1048576, 4), 0),
        ((65536, 8, 5), 1),
        ((65536, 32, 128), 1),
        ((32, 512, 9, 9, 16), 2),
    ):
        for what in ("plain", "weighted"):

            def run(x: Any, w: Any, dim: int = dim, what: str = what) -> Any:
                return (x if what == "plain" else x * jnp.expand_dims(w, dim)).sum(dim)

            rest = shape[:dim] + shape[dim + 1 :]
            yield Case(named("sums", shape, dim, what), run, [array(*shape), array(*rest)])


def products() -> Iterator[Case]:
    """Products of f32."""
    for batch, m, n, k in (
        (1, 24640, 769, 512),
        (1, 24640, 768, 512),
        (1, 18720, 172, 259),
        (1, 15600, 259, 172),
        (1, 2576, 643, 428),
        (1, 4096, 1001, 1003),
        (1, 4096, 1024, 1024),
        (1, 101010, 24, 24),
        (1, 92020, 2, 2),
        (1, 491520, 64, 16),
        (1, 200, 200, 6000),
        (86, 240, 130, 87),
        (86, 240, 128, 88),
        (214, 215, 20, 322),
        (214, 322, 16, 215),
        (256, 128, 385, 257),
        (32, 24576, 16, 16),
        (32, 24576, 32, 256),
        (4096, 9, 9, 32),
    ):
        for precision in ("default", "highest"):

            def run(x: Any, y: Any, precision: str = precision) -> Any:
                return jnp.matmul(x, y, precision=precision)

            sides = [array(*((batch,) if batch > 1 else ()), *side) for side in ((m, k), (k, n))]
            yield Case(named("products", (batch, m, n, k), precision), run, sides)


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    # In turns, so that a run that is cut has some of every kind.
    kinds = [list(kind()) for kind in (picked, turned, products, rows, complexes, sums, joined)]
    turns = range(max(map(len, kinds)))
    cases = [kind[turn] for turn in turns for kind in kinds if turn < len(kind)]
    write_folder(asked.folder, cases, library="walks", group="kernels", mode="infer")


if __name__ == "__main__":
    main()
