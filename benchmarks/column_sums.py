"""Writes a folder of sums of columns for `benchmarks/corpus/measure.py`: softmax across heads, norms' gradients, decoding.

    python -m benchmarks.column_sums FOLDER [--count 112] [--seed 37]
    python benchmarks/corpus/measure.py FOLDER OUT --quick --compilers 12

What is reduced is (major, rows, columns), along its rows. Kinds of program, drawn by a seed; the id says all:

- `sum`: the sum in f32;
- `exps`: sums of exponentials of what is left by the columns' largest;
- `kept`: rows are masked by their place, scaled and written, and their columns' largest found, as decoding does with scores;
- `both`: the sum, and the sum of products with a second array, as gradients of norms are.

Columns of 2 to 32 that divide 32 have an emitter of their own. Part `apart`, every second one by the SHA-256 of its id, is for
judging what is set with the others.
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

SEED = 37
BYTES = (1 << 17, 1 << 28)  # of an array, least and most
KINDS = ("sum", "exps", "kept", "kept", "both")


@dataclass(frozen=True)
class Sums:
    """What a program reduces, and how."""

    kind: str
    dtype: str
    major: int
    rows: int
    columns: int

    @property
    def id(self) -> str:
        """All of it in a name."""
        return "columns-" + "-".join(f"{value}" for value in asdict(self).values())

    @property
    def bytes(self) -> int:
        """Of its array."""
        return self.major * self.rows * self.columns * jnp.dtype(self.dtype).itemsize


def drawn(seed: int) -> Iterator[Sums]:
    """Programs without end, drawn by the seed."""
    random = np.random.default_rng(seed)

    def one(values: Any) -> Any:
        return values[random.integers(len(values))]

    while True:
        columns = one(
            ((2, 4, 8, 16, 32), (3, 5, 6, 7, 12, 24, 40), (64, 80, 96, 128, 192, 256), (768, 1000, 2048, 8192))
        )
        found = Sums(
            kind=one(KINDS),
            dtype=one(("bfloat16", "bfloat16", "float32")),
            major=int(one((1, 8, 8, 32, 64, 128, 512, 2048))),
            rows=int(one((128, 512, 1000, 1024, 2048, 4096))),
            columns=int(one(columns)),
        )
        if BYTES[0] <= found.bytes <= BYTES[1]:
            yield found


def program(sums: Sums) -> tuple[Any, list[Any]]:
    """Its function, and its arguments."""
    array = jax.ShapeDtypeStruct((sums.major, sums.rows, sums.columns), jnp.dtype(sums.dtype))
    if sums.kind == "sum":
        return lambda x: x.astype(jnp.float32).sum(1), [array]
    if sums.kind == "both":

        def both(x: Any, y: Any) -> Any:
            wide = x.astype(jnp.float32)
            return wide.sum(1), (wide * y.astype(jnp.float32)).sum(1)

        return both, [array, array]
    if sums.kind == "exps":
        largest = jax.ShapeDtypeStruct((sums.major, sums.columns), jnp.float32)
        return lambda x, m: jnp.exp(x.astype(jnp.float32) - m[:, None]).sum(1), [array, largest]

    def kept(x: Any, last: Any) -> Any:
        here = jnp.arange(sums.rows)[None, :, None] <= last
        masked = jnp.where(here, x.astype(jnp.float32) * 0.125, -1e30)
        return masked, masked.max(1)

    return kept, [array, jax.ShapeDtypeStruct((), jnp.int32)]


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=112)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    found: dict[str, Sums] = {}
    for sums in drawn(asked.seed):
        found[sums.id] = sums
        if len(found) >= asked.count:
            break
    cases = [Case(name, *program(sums), dtype=sums.dtype) for name, sums in found.items()]
    write_folder(asked.folder, cases, library="layers", group="reduce", mode="infer")


if __name__ == "__main__":
    main()
