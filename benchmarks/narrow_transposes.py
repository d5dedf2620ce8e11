"""Writes a folder of transposes and products of one byte and less for `benchmarks/corpus/measure.py`: rates that packing decides.

    python -m benchmarks.narrow_transposes FOLDER [--count N]
    python benchmarks/corpus/measure.py FOLDER OUT

Kinds of program; the id says all:

- `turn`: a transpose alone, `y = x.transpose(order)`, of int8, int4, int2 or fp8, of powers of two and not;
- `kn`, `nk`: a product with weights across K or along it, activations by weights, `int8-int4` widened in the program, as weights
  are that are stored in fewer bits than they are multiplied in. XLA tunes them, and turns operands of one byte where a library's
  kernel that wants them along K is faster than Triton's own.

Part `apart`, every second one by the SHA-256 of its id, is for judging what is set with the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.folders import Case, write_folder

TURNED: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((512, 512), (1, 0)), ((1024, 4096), (1, 0)), ((4096, 1024), (1, 0)), ((2048, 2048), (1, 0)), ((4096, 4096), (1, 0)),
    ((8192, 8192), (1, 0)), ((16384, 4096), (1, 0)), ((1000, 3000), (1, 0)), ((4100, 2052), (1, 0)), ((64, 65536), (1, 0)),
    ((65536, 64), (1, 0)), ((32, 512, 512), (0, 2, 1)), ((128, 56, 56, 64), (0, 3, 1, 2)), ((64, 128, 28, 28), (0, 2, 3, 1)),
    ((16, 1024, 12, 64), (0, 2, 1, 3)), ((7168, 18432), (1, 0)),
)  # fmt: skip
TYPES = ("int8", "int4", "float8_e4m3fn", "int2")  # all shapes of the first two, every second one of the others
PRODUCTS = (  # m, n, k
    (2048, 2048, 2048), (16, 4096, 4096), (512, 4096, 4096), (4096, 4096, 4096), (2048, 8192, 1024), (128, 11008, 4096),
    (8192, 1024, 4096), (1024, 1024, 8192),
)  # fmt: skip
OPERANDS = (("int8", "int8", "kn"), ("int8", "int4", "kn"), ("int8", "int4", "nk"), ("int4", "int4", "nk"))


def cases() -> Iterator[Case]:
    """The programs, transposes first, as they are compiled in no time."""
    for every, dtype in enumerate(dict.fromkeys(TYPES)):
        for shape, order in TURNED[:: 1 if every < 2 else 2]:
            name = f"turn-{dtype}-{'x'.join(map(str, shape))}-{''.join(map(str, order))}"
            given = jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
            yield Case(name, lambda x, order=order: jnp.transpose(x, order), [given], dtype=dtype)
    for place, (lhs, rhs, order) in enumerate(OPERANDS):
        for m, n, k in PRODUCTS[:: 1 if place == 0 else 2]:
            yield product(lhs, rhs, order, m, n, k)


def product(lhs: str, rhs: str, order: str, m: int, n: int, k: int) -> Case:
    """A product that is summed in i32, its narrower operand widened where it is multiplied."""

    def multiplied(x: Any, w: Any) -> Any:
        dims = (((1,), (0 if order == "kn" else 1,)), ((), ()))
        return jax.lax.dot_general(x, w.astype(x.dtype), dims, preferred_element_type=jnp.int32)

    x = jax.ShapeDtypeStruct((m, k), jnp.dtype(lhs))
    w = jax.ShapeDtypeStruct((k, n) if order == "kn" else (n, k), jnp.dtype(rhs))
    return Case(f"product-{lhs}-{rhs}-{order}-{m}x{n}x{k}", multiplied, [x, w], dtype=lhs)


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=None, help="so many of them, the first")
    asked = parser.parse_args()
    write_folder(asked.folder, list(cases())[: asked.count], library="narrow", group="transpose", mode="forward")


if __name__ == "__main__":
    main()
