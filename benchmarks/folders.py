"""Folders of programs for `benchmarks/corpus/measure.py`: `programs/ID.mlir.gz` and `index.jsonl`, lowered without a GPU."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax


@dataclass(frozen=True)
class Case:
    """A program: its id, its function and its arguments' types, and of integers among them the bounds to draw below."""

    id: str
    function: Callable[..., Any]
    arguments: list[Any]
    dtype: str = "float32"
    below: Mapping[int, int] = field(default_factory=dict)


def part_of(name: str) -> str:
    """Every second program by the SHA-256 of its id is set apart."""
    return "apart" if hashlib.sha256(name.encode()).digest()[0] % 2 else "open"


def write_folder(folder: Path, cases: Iterable[Case], *, library: str, group: str, mode: str) -> None:
    """Writes the programs and their index, in the order in which they are to be measured."""
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    with (folder / "index.jsonl").open("w") as index:
        for case in cases:
            traced = jax.jit(case.function).trace(*case.arguments)
            lowered = traced.lower(lowering_platforms=("cuda",)).as_text()
            (folder / "programs" / f"{case.id}.mlir.gz").write_bytes(gzip.compress(lowered.encode(), mtime=0))
            row: dict[str, Any] = {"id": case.id, "library": library, "part": part_of(case.id), "mode": mode}
            row |= {"dtype": case.dtype, "group": group}
            row |= {"below": {str(place): bound for place, bound in case.below.items()}} if case.below else {}
            index.write(json.dumps(row) + "\n")
