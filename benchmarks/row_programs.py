"""Writes a folder of softmaxes, norms and their gradients for `benchmarks/corpus/measure.py`: rows that programs hold whole.

    python -m benchmarks.row_programs FOLDER [--count 130] [--seed 41]
    python benchmarks/corpus/measure.py FOLDER OUT --quick --compilers 12

What is reduced is (major, rows, length), along its length. Kinds of program, drawn by a seed; the id says all:

- `softmax`: of scores, written in the second type;
- `gradient`: of a softmax that is worked out again from its scores, given what comes back in the second type;
- `weighed`: the gradient given the softmax, two operands and one sum;
- `norm`, `rms`: layer norm and its plain kind, written in the second type;
- `norm-gradient`: the gradient of a layer norm's argument.

Masks of scores: none, a number a column (`column`), one for rows and columns that all majors share (`shared`), compared places
(`causal`). Part `apart`, by the SHA-256 of the id, is for judging what is set with the others.
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

SEED = 41
ELEMENTS = (1 << 19, 1 << 27)  # least and most
KINDS = ("softmax", "softmax", "softmax", "gradient", "gradient", "weighed", "norm", "rms", "norm-gradient")
MASKED = ("softmax", "gradient")


@dataclass(frozen=True)
class Rows:
    """What a program reduces, and how."""

    kind: str
    mask: str
    taken: str
    given: str
    major: int
    rows: int
    length: int

    @property
    def id(self) -> str:
        """All of it in a name."""
        return "rows-" + "-".join(f"{value}" for value in asdict(self).values())


def drawn(seed: int) -> Iterator[Rows]:
    """Programs without end, drawn by the seed."""
    random = np.random.default_rng(seed)

    def one(values: Any) -> Any:
        return values[random.integers(len(values))]

    while True:
        kind = str(one(KINDS))
        length = int(one((64, 128, 196, 256, 257, 384, 512, 768, 1024, 1500, 2048, 4096)))
        found = Rows(
            kind=kind,
            mask=str(one(("none", "column", "shared", "causal", "causal"))) if kind in MASKED else "none",
            taken=str(one(("bfloat16", "float32"))),
            given=str(one(("bfloat16", "float32"))),
            major=int(one((8, 32, 64, 96, 128))),
            rows=int(one((length, length, 64, 256, 1024))),
            length=length,
        )
        if ELEMENTS[0] <= found.major * found.rows * length <= ELEMENTS[1]:
            yield found


def program(rows: Rows) -> tuple[Any, list[Any]]:
    """Its function, and its arguments."""
    wide, shape = jnp.float32, (rows.major, rows.rows, rows.length)
    taken = jax.ShapeDtypeStruct(shape, jnp.dtype(rows.taken))
    given = jax.ShapeDtypeStruct(shape, jnp.dtype(rows.given))
    vector = jax.ShapeDtypeStruct((rows.length,), wide)

    def masked(x: Any, mask: Any) -> Any:
        x = x.astype(wide) * 0.125
        if rows.mask == "none":
            return x
        if rows.mask == "causal":
            mask = jnp.arange(rows.rows)[:, None] >= jnp.arange(rows.length)[None, :]
        return jnp.where(mask[:, None, :] if rows.mask == "column" else mask[None], x, -1e30)

    masks = {
        "column": [jax.ShapeDtypeStruct((rows.major, rows.length), jnp.bool_)],
        "shared": [jax.ShapeDtypeStruct(shape[1:], jnp.bool_)],
    }.get(rows.mask, [])

    def softmax(x: Any, *mask: Any) -> Any:
        return jax.nn.softmax(masked(x, mask[0] if mask else None), axis=-1).astype(rows.given)

    def gradient(x: Any, back: Any, *mask: Any) -> Any:
        return jax.vjp(lambda scores: softmax(scores, *mask), x)[1](back)[0]

    def weighed(kept: Any, back: Any) -> Any:
        kept, back = kept.astype(wide), back.astype(wide)
        return (kept * (back - (kept * back).sum(-1, keepdims=True))).astype(rows.given)

    def norm(x: Any, scale: Any) -> Any:
        x = x.astype(wide)
        middle = x.mean(-1, keepdims=True) if rows.kind != "rms" else 0.0
        spread = jnp.square(x - middle).mean(-1, keepdims=True)
        return ((x - middle) * jax.lax.rsqrt(spread + 1e-5) * scale).astype(rows.given)

    if rows.kind == "softmax":
        return softmax, [taken, *masks]
    if rows.kind == "gradient":
        return gradient, [taken, given, *masks]
    if rows.kind == "weighed":
        return weighed, [taken, given]
    if rows.kind == "norm-gradient":
        return lambda x, scale, back: jax.vjp(lambda here: norm(here, scale), x)[1](back)[0], [taken, vector, given]
    return norm, [taken, vector]


def main() -> None:
    """Writes `programs/ID.mlir.gz` and `index.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=130)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    found: dict[str, Rows] = {}
    for rows in drawn(asked.seed):
        found[rows.id] = rows
        if len(found) >= asked.count:
            break
    cases = [Case(name, *program(rows), dtype=rows.taken) for name, rows in found.items()]
    write_folder(asked.folder, cases, library="layers", group="reduce", mode="infer")


if __name__ == "__main__":
    main()
