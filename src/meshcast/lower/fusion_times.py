"""What XLA:GPU's cost model says about computing an op again: whether its kernel takes longer than what is repeated without it.

After priority_fusion.cc and gpu_performance_model_base.cc (openxla/xla, August 2026). A kernel's time is
`launch + m + c - 0.95 min(c, m)`: its launch of 1 us, its bytes at the memory's rate, and of its arithmetic what does not
hide behind them. An op that all of its readers take in saves its launch, its reads and writes and their reads of it; it costs
their reads of its operands, and its arithmetic once for every element that they ask for. Bytes are counted in full, though
XLA lets them hide behind arithmetic in turn: it decides while readers are still small. An op that is repeated brings along the
ops that lead to it alone, which XLA has fused with it by then. Cycles an element are those that XLA measured on an H100
(hlo_op_profiles_data.h), 3 where it knows none. Clock, lanes and memory rate are a Hopper's: a lowering knows the kind of its
device alone, and what is decided goes by ratios of times that hardly differ between generations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from meshcast.lower.growing import Growing
from meshcast.lower.single_exits import NO_EXIT
from meshcast.workload import Op, OpKind, Tensor

# Operands and results of one kernel, and copies of ops in its code (MaxOperandsAndOutputsPerFusion, kMaxIRSize).
MAX_VALUES = 96
MAX_COPIES = 10_000

LAUNCH_S = 1e-6
_LANES = 132 * 128
_CYCLES_PER_S = 2 * 1.98e9
_BYTES_PER_S = 4.8e12
_OVERLAP = 0.95

_DEFAULT_CYCLES = 3.0
_SLOW_CYCLES = 100.0  # of a function that is not listed
_CYCLES = {
    "add": 7, "subtract": 7, "multiply": 3, "divide": 19, "exponential": 79, "exponential_minus_one": 190, "log": 166,
    "log_plus_one": 229, "rsqrt": 75, "sqrt": 75, "cbrt": 178, "tanh": 467, "logistic": 176, "power": 510, "cosine": 978,
    "sine": 958, "atan2": 431,
}  # fmt: skip
_MOVING = frozenset(
    {OpKind.BROADCAST, OpKind.GENERATE, OpKind.SLICE, OpKind.MOVE, OpKind.TRANSPOSE, OpKind.GATHER, OpKind.VIEW}
)


def cycles_of(op: Op, by_constant: bool) -> float:
    """Cycles that an op takes for one element of its result; a division by a constant is a multiplication."""
    if op.cost.kind in _MOVING:
        return 0.0
    name = op.name.rpartition(".")[2]
    known = _CYCLES.get("multiply" if by_constant and name == "divide" else name)
    return float(known) if known else _SLOW_CYCLES if op.cost.transcendentals else _DEFAULT_CYCLES


class Work(NamedTuple):
    """What it takes to have a value.

    Attributes:
        own: Cycles for each of its elements, of the op that makes it.
        chain: The same, with the ops that lead to it alone.
        read: Bytes that those ops and this one read.
    """

    own: float
    chain: float
    read: float


Reads = Sequence[tuple[int, int]]  # operands of an op, each with the bytes that it takes to have it


def work_of_values(
    members: Mapping[int, tuple[Op, Reads]],
    operands: Sequence[Sequence[int]],
    tensors: Sequence[Tensor],
    constants: Set[int],
    exits: Sequence[int],
    is_read_alone: Callable[[int], bool],
) -> dict[int, Work]:
    """What it takes to have each value, with the ops that lead to it alone.

    `chain(v) = own(v) + sum(chain(u) min(1, n_u / n_v))` over the ops `u` that have `v` as their exit, of `n` elements each: of
    a slice only what is asked for, of the parts of a whole each its share.

    Args:
        members: A block's ops that may be fused and have one result, by place, with what they read.
        operands: Of all ops.
        tensors: Types of all values.
        constants: Values that are known before a run.
        exits: The single exit of each op (`single_exits`).
        is_read_alone: Whether a single op reads a value.
    """
    found: dict[int, Work] = {}
    cycles: dict[tuple[int, str, bool], float] = {}  # by cost, which most ops of a long program share, and name
    behind: dict[int, list[int]] = {}  # exit -> values that lead to it alone
    for index, (op, reads) in members.items():
        read_values = operands[index]
        by_constant = len(read_values) == 2 and read_values[1] in constants
        kind = (id(op.cost), op.name, by_constant)
        own = cycles.get(kind)
        if own is None:
            own = cycles[kind] = cycles_of(op, by_constant=by_constant)
        result = op.results[0]
        elements = tensors[result].elements
        chain, read = own, 0.0
        for value, size in reads if len(reads) < 2 else dict(reads).items():
            before = found.get(value)
            alone = before is not None and value not in constants and tensors[value].elements == elements
            read += before.read if before is not None and alone and is_read_alone(value) else size
        for value in behind.pop(index, ()):
            size, before = tensors[value].elements, found[value]
            chain += before.chain if size >= elements else before.chain * size / elements
        found[result] = Work(own, chain, read)
        if exits[index] != NO_EXIT and result not in constants:
            behind.setdefault(exits[index], []).append(result)
    return found


# A fusion that would take an op in, how many of its elements the fusion asks for, and at how many places.
Repeating = tuple[Growing, int, int]


def takes_in(op: Op, reads: Reads, elements: int, work: Work, readers: Sequence[Repeating]) -> bool:
    """Whether an op is computed inside its readers; if so, they have grown by it.

    Args:
        op: The op.
        reads: Its operands, each with the bytes that it takes to have it.
        elements: Of its result.
        work: For each of them.
        readers: Fusions of the ops that read it.
    """
    evaluated = readers[0][1] if len(readers) == 1 else sum([asked for _, asked, _ in readers])
    read = sum([size for _, size in reads])
    if evaluated > elements:  # repeated
        cycles, behind = work.chain, max(0.0, work.read - read)  # what the chain reads besides
    else:
        cycles, behind = work.own, 0.0
    saved = read + behind + op.cost.written_bytes
    extra = 0.0
    if cycles:
        seconds = elements * cycles / arithmetic_rate(elements)
        extra = _OVERLAP * min(seconds, saved / _BYTES_PER_S) - seconds
    grown: list[dict[int, float]] = []
    for fusion, asked, copies in readers:
        moved = fusion.moved
        more: dict[int, float] = {}
        share = asked / elements if asked < elements else 1.0
        for value, size in reads:
            part = size * share
            if part > moved.get(value, 0.0):
                more[value] = part
        if len(moved) + len(more) > MAX_VALUES or fusion.copies + copies > MAX_COPIES:
            return False
        if cycles:
            hidden, before = (fusion.read + fusion.written) / _BYTES_PER_S, fusion.cycles
            seconds = (before + asked * cycles) / fusion.rate
            extra += seconds - _OVERLAP * min(seconds, hidden)
            seconds = before / fusion.rate
            extra -= seconds - _OVERLAP * min(seconds, hidden)
        for value in op.results:
            saved += moved.get(value, 0.0)
        saved -= sum([size - moved.get(value, 0.0) for value, size in more.items()]) + behind * share
        grown.append(more)
    if extra - saved / _BYTES_PER_S > LAUNCH_S:
        return False
    for (fusion, asked, copies), more in zip(readers, grown, strict=True):
        fusion.grow(op, asked * work.own, copies, more)
    return True


def arithmetic_rate(elements: int) -> float:
    """Cycles a second of a kernel over so many elements: each has a lane, while there are lanes."""
    lanes = _LANES if elements > _LANES else elements or 1
    return _CYCLES_PER_S * lanes
