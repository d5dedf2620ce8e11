"""Lowers a program for CUDA on a machine that has no GPU, and keeps the text with what is quickly said of it."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from typing import Any

import jax
import numpy as np

from benchmarks.corpus.record import Index, Program
from benchmarks.corpus.shapes import Bounded, abstract

# Above this a text holds constants that ought to be arguments, or loops that Python has written out.
LONGEST_BYTES = 400_000
# Arrays that a function closes over become arguments where there is more of them.
EMBEDDED_BYTES = 65_536
# A loop that counts: its condition compares the counter with a constant and does nothing else.
CONDITION = re.compile(r"cond \{(.*?)\} do \{", re.DOTALL)
COUNTED = re.compile(r"stablehlo\.compare +LT, %iterArg(_\d+)?, %c(_\d+)?,")
OPERATION = re.compile(r"^\s*(?:%[\w:, %#]+ = )?\"?((?:stablehlo|chlo|func|mhlo)\.\w+|call)\b", re.MULTILINE)


class TooLongError(Exception):
    """A program's text is longer than a corpus that is handed around should hold."""


def lowered(program: Program) -> tuple[str, dict[int, int]]:
    """The StableHLO text of a program, and for its integer arguments, by their number in it, the bound to draw below."""
    function, arguments = program.build()
    arguments = abstract(arguments)
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    traced = jitted.trace(*arguments)
    leaves = jax.tree.leaves(arguments)
    if sum(np.size(each) * np.dtype(each.dtype).itemsize for each in traced.jaxpr.consts) > EMBEDDED_BYTES:
        traced, leaves = without_constants(traced.jaxpr, leaves)
    stage: Any = traced.lower(lowering_platforms=("cuda",))
    # Arguments that nothing reads are not in the text; JAX has no public name for which are.
    kept = sorted(stage._lowering.compile_args["kept_var_idx"])
    if kept and kept[-1] >= len(leaves):
        raise ValueError("the function closes over values that were traced while it was made: make it without tracing")
    below = {place: leaves[number].below for place, number in enumerate(kept) if isinstance(leaves[number], Bounded)}
    return stage.as_text(), below


def without_constants(closed: Any, leaves: list[Any]) -> tuple[Any, list[Any]]:
    """A traced program again with the arrays that it closes over as its first arguments, and all its arguments."""

    def function(constants: Any, *given: Any) -> Any:
        return jax.core.eval_jaxpr(closed.jaxpr, constants, *given)

    constants = abstract(list(closed.consts))
    return jax.jit(function).trace(constants, *leaves), [*constants, *leaves]


def operations(text: str) -> Counter[str]:
    """How often each operation is written in a program's text."""
    return Counter(OPERATION.findall(text))


def ends_on_data(text: str) -> bool:
    """Whether a loop may end by other values than a counter's: its turns are then those of a run's arguments."""
    for condition in CONDITION.findall(text):
        idle = ("stablehlo.constant", "stablehlo.return")
        lines = [line for line in condition.splitlines() if line.strip() and not any(word in line for word in idle)]
        if len(lines) != 1 or not COUNTED.search(lines[0]):
            return True
    return False


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
    found: dict[str, Any] = {
        "version": version,
        "bytes": len(packed),
        "operations": counts.total(),
        "kinds": len(counts),
    }
    found |= {"ends_on_data": True} if ends_on_data(text) else {}
    found |= {"below": below} if below else {}
    index.write(program, packed, **found)
    return found
