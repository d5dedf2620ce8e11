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

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from meshcast.lower.fusion_rules import FUSIBLE_PRODUCERS
from meshcast.lower.growing import Growing
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


@dataclass(frozen=True, slots=True)
class Work:
    """What it takes to have a value.

    Attributes:
        own: Cycles for each of its elements, of the op that makes it.
        chain: The same, with the ops that lead to it alone.
        read: Bytes that those ops and this one read.
    """

    own: float
    chain: float
    read: float


def work_of_values(
    members: Iterable[tuple[Op, Sequence[int]]],
    tensors: Sequence[Tensor],
    constants: Set[int],
    sources: Mapping[int, int],
    is_read_alone: Callable[[int], bool],
) -> dict[int, Work]:
    """What it takes to have each value, with the ops of as many elements that lead to it alone.

    Args:
        members: A block's ops in order, with their operands.
        tensors: Types of all values.
        constants: Values that are known before a run.
        sources: Bytes that a value can be had for, where that is less than its own.
        is_read_alone: Whether a single op reads a value.
    """
    found: dict[int, Work] = {}
    for op, operands in members:
        if op.cost.kind not in FUSIBLE_PRODUCERS or len(op.results) != 1:
            continue
        own = cycles_of(op, by_constant=len(operands) == 2 and operands[1] in constants)
        elements = tensors[op.results[0]].elements
        chain, read = own, 0.0
        for value, size in dict(zip(operands, op.cost.operand_bytes, strict=False)).items():
            leads = value in found and value not in constants and tensors[value].elements == elements
            before = found[value] if leads and is_read_alone(value) else None
            chain += before.chain if before else 0.0
            read += before.read if before else min(size, sources.get(value, size))
        found[op.results[0]] = Work(own, chain, read)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatingFusion:
    """A fusion that would take an op in.

    Attributes:
        fusion: What has joined it so far.
        written: Bytes that it writes.
        space: Elements that it runs over.
        evaluated: Elements of the op that it asks for.
        copies: At how many places.
    """

    fusion: Growing
    written: int
    space: int
    evaluated: int
    copies: int


def takes_in(
    op: Op, reads: Sequence[tuple[int, float]], elements: int, work: Work, readers: Sequence[RepeatingFusion]
) -> bool:
    """Whether an op is computed inside its readers; if so, they have grown by it.

    Args:
        op: The op.
        reads: Its operands, each with the bytes that it takes to have it.
        elements: Of its result.
        work: For each of them.
        readers: Fusions of the ops that read it.
    """
    repeated = sum([reader.evaluated for reader in readers]) > elements
    cycles = work.chain if repeated else work.own
    read = sum([size for _, size in reads])
    behind = max(0.0, work.read - read) if repeated else 0.0  # what the chain reads besides
    saved = read + behind + op.cost.written_bytes
    extra = -_computing(elements * cycles, saved, elements) if cycles else 0.0
    grown: list[dict[int, float]] = []
    for reader in readers:
        moved = reader.fusion.moved
        share = min(1.0, reader.evaluated / elements) if elements else 1.0
        more = {value: size * share for value, size in reads if size * share > moved.get(value, 0.0)}
        if len(moved) + len(more) > MAX_VALUES or reader.fusion.copies + reader.copies > MAX_COPIES:
            return False
        if cycles:
            total, before = sum(moved.values()) + reader.written, reader.fusion.cycles
            extra += _computing(before + reader.evaluated * cycles, total, reader.space)
            extra -= _computing(before, total, reader.space)
        saved += sum([moved.get(value, 0.0) for value in op.results])
        saved -= sum([size - moved.get(value, 0.0) for value, size in more.items()]) + behind * share
        grown.append(more)
    if extra - saved / _BYTES_PER_S > LAUNCH_S:
        return False
    for reader, more in zip(readers, grown, strict=True):
        reader.fusion.grow(op, reader.evaluated * work.own, reader.copies, more)
    return True


def _computing(cycles: float, moved: float, elements: int) -> float:
    """What of so many cycles over `elements` does not hide behind bytes that the same kernel moves."""
    seconds = cycles / (_CYCLES_PER_S * max(1, min(_LANES, elements)))
    return seconds - _OVERLAP * min(seconds, moved / _BYTES_PER_S)
