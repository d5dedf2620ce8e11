"""Writes a folder of products with vectors for `benchmarks/corpus/measure.py`: what decoding and small batches ask for.

    python -m benchmarks.vector_products FOLDER [--count 72] [--kinds mix pair] [--least-mib 64] [--seed 31]
    python benchmarks/corpus/measure.py FOLDER OUT --quick --compilers 4

Kinds of program, drawn by a seed; the id says all:

- `scores`: one query a head against a cache, `s_bht = sum_d q_bhd k_bhtd`, rows of `dim` elements summed;
- `mix`: what a head makes of its cache, `o_bhd = sum_t p_bht v_bhtd`, columns summed;
- `pair`: two such sums of one vector, as of the two matrices of a gated expert, which XLA makes one kernel of;
- `single`: a single row by a matrix, `y_n = sum_k x_k w_kn`, or by one that lies the other way round (`turned`).

XLA makes reductions of the first two, and of the third below 10 million multiply-adds (`lower/products/vector_products.py`). Part
`apart`, every second one by the SHA-256 of its id, is for judging what is set with the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.folders import Case, write_folder

SEED = 29
MOST_BYTES = 1 << 29
KINDS = ("scores", "scores", "mix", "mix", "single", "turned")


@dataclass(frozen=True)
class Product:
    """A product's sizes: so many matrices of `rows` x `columns`, and how the program multiplies each with a vector."""

    kind: str
    dtype: str
    matrices: int
    rows: int
    columns: int

    @property
    def id(self) -> str:
        """All of it in a name."""
        return "vector-" + "-".join(f"{value}" for value in asdict(self).values())

    @property
    def bytes(self) -> int:
        """Of the matrices."""
        return self.matrices * self.rows * self.columns * jnp.dtype(self.dtype).itemsize


def products(kinds: tuple[str, ...], least: int, seed: int) -> Iterator[Product]:
    """Products without end, drawn by the seed."""
    random = np.random.default_rng(seed)

    def one(values: Any) -> Any:
        return values[random.integers(len(values))]

    while True:
        kind = one(kinds)
        dtype = one(("bfloat16", "bfloat16", "float16", "float32"))
        if kind in ("scores", "mix", "pair"):
            heads = int(one((8, 12, 16, 20, 32, 40, 71)) * one((1, 1, 2, 4, 8, 16, 32)))
            sizes = (
                heads,
                int(one((128, 500, 512, 1000, 1024, 2048, 4096, 8192))),
                int(one((32, 64, 64, 80, 96, 128, 128, 192, 256))),
            )
        else:
            sizes = (
                1,
                int(one((512, 768, 1024, 2048, 2560, 4096, 8192))),
                int(one((256, 768, 1000, 1024, 2048, 3072, 4096, 11008))),
            )
        product = Product(kind, dtype, *sizes)
        if least <= product.bytes <= MOST_BYTES:
            yield product


def program(product: Product) -> tuple[Any, list[Any]]:
    """Its function, and its arguments."""
    dtype = jnp.dtype(product.dtype)
    n, rows, columns = product.matrices, product.rows, product.columns

    def spec(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    if product.kind == "scores":
        return lambda q, k: jnp.einsum("hd,htd->ht", q, k), [spec(n, columns), spec(n, rows, columns)]
    if product.kind == "mix":
        return lambda p, v: jnp.einsum("ht,htd->hd", p, v), [spec(n, rows), spec(n, rows, columns)]
    if product.kind == "pair":

        def both(p: Any, v: Any, w: Any) -> Any:
            return jnp.einsum("ht,htd->hd", p, v), jnp.einsum("ht,htd->hd", p, w)

        return both, [spec(n, rows), spec(n, rows, columns), spec(n, rows, columns)]
    if product.kind == "turned":
        return lambda x, w: x @ w.T, [spec(1, columns), spec(rows, columns)]
    return lambda x, w: x @ w, [spec(1, rows), spec(rows, columns)]


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=72)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=[*dict.fromkeys(KINDS), "pair"])
    parser.add_argument("--least-mib", type=int, default=1)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    found: dict[str, Product] = {}
    for product in products(tuple(asked.kinds), asked.least_mib << 20, asked.seed):
        found[product.id] = product
        if len(found) >= asked.count:
            break
    cases = [Case(name, *program(product), dtype=product.dtype) for name, product in found.items()]
    write_folder(asked.folder, cases, library="layers", group="reduce", mode="infer")


if __name__ == "__main__":
    main()
