"""Instructions of elementwise functions on a GPU: those of CUDA's mathematical library, as XLA calls it.

Measured on an H200 by the probes `functions` (`data/measured/h200-profile`): chains of one function over four million numbers,
less what the same chain of additions takes. A sum, a product, a comparison or a choice takes about one (two of them fuse);
whoever counts them as one FLOP each has to know that a division takes ten and a power ninety.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from meshcast.lower import short_name
from meshcast.workload import element_work

# By op; what stands for several ops of XLA's (CHLO's) in all. Bits are mixed by less than an instruction an op: a rotation, which
# programs write as two shifts and an `or`, is one (SHF; six programs that draw random numbers by Threefry).
FUNCTION_INSTRUCTIONS: Mapping[str, float] = {
    "acos": 82, "acosh": 90, "asin": 82, "asinh": 90, "atan": 45, "atan2": 57, "atanh": 70, "bessel_i1e": 110, "cbrt": 22,
    "cosh": 40, "cosine": 31, "digamma": 370, "divide": 10, "erf": 31, "erf_inv": 77, "erfc": 90, "exponential": 10.5,
    "exponential_minus_one": 36, "lgamma": 270, "log": 30, "log_plus_one": 36, "logistic": 20, "power": 92, "remainder": 20,
    "rsqrt": 5, "sine": 31, "sinh": 60, "sqrt": 5, "tan": 31, "tanh": 29,
    "or": 0.9, "shift_left": 0.9, "shift_right_logical": 0.9, "xor": 0.9,
}  # fmt: skip

# Instructions by which an element finds its place in an op's operands: a piece of several, a border. A fusion of
# sixteen concatenations takes some 190 an element (probes `joins`).
INDEX_INSTRUCTIONS: Mapping[str, float] = {"concatenate": 12, "pad": 8}


@functools.lru_cache(maxsize=4096)
def index_instructions(ops: tuple[str, ...]) -> float:
    """Instructions an element that find places instead of computing numbers."""
    return sum(INDEX_INSTRUCTIONS.get(short_name(name), 0.0) for name in ops)


@functools.lru_cache(maxsize=4096)
def instructions_per_work(ops: tuple[str, ...], plain: float, unknown: float) -> tuple[float, float]:
    """(Instructions a FLOP, instructions a transcendental) of a kernel's ops, each weighing what it counts for an element.

    Args:
        ops: The kernel's, as often as they occur.
        plain: Instructions of a FLOP that is no function.
        unknown: Instructions of a transcendental that is none of the table.
    """
    flops = flop_instructions = functions = function_instructions = 0.0
    for name in ops:
        work = element_work(name)
        if work is None:
            continue
        known = FUNCTION_INSTRUCTIONS.get(short_name(name).removeprefix("broadcast_"))
        flops += work.flops
        if not work.transcendentals:
            flop_instructions += plain * work.flops if known is None else known
            continue
        arithmetic = plain * work.flops
        flop_instructions += arithmetic
        functions += work.transcendentals
        function_instructions += unknown * work.transcendentals if known is None else max(0.0, known - arithmetic)
    return (
        flop_instructions / flops if flops else plain,
        function_instructions / functions if functions else unknown,
    )
