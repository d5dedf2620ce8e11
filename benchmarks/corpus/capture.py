"""Lowers a program for CUDA on a machine that has no GPU, and keeps the text with what is quickly said of it."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from typing import Any

import jax

from benchmarks.corpus.record import Index, Program
from benchmarks.corpus.shapes import Bounded, abstract

# Above this a text holds constants that ought to be arguments, or loops that Python has written out.
LONGEST_BYTES = 400_000
OPERATION = re.compile(r"^\s*(?:%[\w:, %#]+ = )?\"?((?:stablehlo|chlo|func|mhlo)\.\w+|call)\b", re.MULTILINE)


class TooLongError(Exception):
    """A program's text is longer than a corpus that is handed around should hold."""


def lowered(program: Program) -> tuple[str, dict[int, int]]:
    """The StableHLO text of a program, and for its integer arguments, by their number in it, the bound to draw below."""
    function, arguments = program.build()
    arguments = abstract(arguments)
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    stage: Any = jitted.trace(*arguments).lower(lowering_platforms=("cuda",))
    # Arguments that nothing reads are not in the text; JAX has no public name for which are.
    kept = sorted(stage._lowering.compile_args["kept_var_idx"])
    leaves = jax.tree.leaves(arguments)
    if kept and kept[-1] >= len(leaves):
        raise ValueError("the function closes over values that were traced while it was made: make it without tracing")
    below = {place: leaves[number].below for place, number in enumerate(kept) if isinstance(leaves[number], Bounded)}
    return stage.as_text(), below


def operations(text: str) -> Counter[str]:
    """How often each operation is written in a program's text."""
    return Counter(OPERATION.findall(text))


def captured(program: Program, index: Index, version: str) -> dict[str, Any]:
    """Keeps one program in the index and returns what was found: bytes of text, operations, kinds of them, arguments."""
    text, below = lowered(program)
    packed = gzip.compress(text.encode(), mtime=0)
    if len(packed) > LONGEST_BYTES:
        raise TooLongError(
            f"{len(packed):,} bytes of gzipped text, more than {LONGEST_BYTES:,}: are constants embedded?"
        )
    counts = operations(text)
    if not counts:
        raise ValueError("no operation was found in the text")
    found = {"version": version, "bytes": len(packed), "operations": counts.total(), "kinds": len(counts)}
    index.write(program, packed, **found, **({"below": below} if below else {}))
    return found
