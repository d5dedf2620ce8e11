"""Writes a folder of passes that turn scores of grouped heads for `benchmarks/corpus/measure.py`.

    python -m benchmarks.turned_heads FOLDER
    python benchmarks/corpus/measure.py FOLDER OUT --quick --compilers 4

A program scales an array and transposes it: `out`, (heads, keys, queries, group) to (heads, group, queries, keys), as a softmax
over grouped heads is handed to its next product, or `back`, the other way round, as its gradient comes in. The id says all. Part
`apart`, every second one by the SHA-256 of its id, is for judging what is set with the others.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.folders import Case, write_folder

HEADS = 8
SIZES = (512, 1024, 2048)
GROUPS = (2, 3, 4, 6, 7)
TYPES = (("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "bfloat16"))


def program(way: str, group: int, size: int, read: str, written: str) -> tuple[Any, list[Any]]:
    """Its function, and its arguments."""
    order = (0, 3, 2, 1)
    shape = (HEADS, size, size, group) if way == "out" else (HEADS, group, size, size)

    def run(x: Any) -> Any:
        return jnp.transpose((x.astype(jnp.float32) * 0.5).astype(written), order)

    return run, [jax.ShapeDtypeStruct(shape, jnp.dtype(read))]


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    cases = [
        Case(f"heads-{way}-{read}-{written}-{size}-{group}", *program(way, group, size, read, written), dtype=read)
        for way, group, size, (read, written) in product(("out", "back"), GROUPS, SIZES, TYPES)
    ]
    write_folder(asked.folder, cases, library="layers", group="transpose", mode="infer")


if __name__ == "__main__":
    main()
