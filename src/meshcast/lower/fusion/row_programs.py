"""Programs for rows among XLA:GPU's fusions: what Triton's kernels of a normalisation take in, and hand on to what reads them.

After CanFuse and CanFuseTriton of priority_fusion.cc (openxla/xla, August 2026). Normalisation diamonds are Triton's kernels
before anything else is fused. What is fused with one is Triton's, too, if all of both can be tiled; a reduction along rows can,
where elsewhere two reductions never share a kernel. So programs spread: a norm's statistics are computed again in each of its
readers, and the sums of its gradient are computed inside what reads them. A tile holds whole rows, so that what is spread over a
row is computed once for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshcast.lower.fusion.candidates import FusionCandidate
from meshcast.lower.fusion.cost_model import MAX_VALUES, kernel_seconds
from meshcast.lower.fusion.growing_fusions import is_indexable
from meshcast.lower.fusion.row_statistics import MAX_ROW, reduction_of
from meshcast.lower.fusion.rules import IN_PLACE
from meshcast.workload import Op, OpKind, Tensor

_NOT_TILED = IN_PLACE | {OpKind.WINDOW}
# Arithmetic that Triton's emitter of XLA does not know (support.cc); nor does it know complex numbers.
_UNKNOWN = frozenset(
    {
        "sign", "is_finite", "shift_left", "shift_right_logical", "shift_right_arithmetic", "popcnt", "count_leading_zeros",
        "round_nearest_afz", "complex", "real", "imag",
    }
)  # fmt: skip


def is_tiled(op: Op, tensors: Sequence[Tensor]) -> bool:
    """Whether a program for rows could compute an op: reductions along rows that a tile holds, whatever Triton can index by."""
    kind = op.cost.kind
    if kind is OpKind.ELEMENTWISE:
        return op.name.rpartition(".")[2] not in _UNKNOWN and not op.cost.dtype.startswith("complex")
    if kind is not OpKind.REDUCE:
        return kind not in _NOT_TILED and is_indexable(op)
    reduction = reduction_of(op, tensors)
    if reduction is None or len(op.results) > 1:
        return False
    before, after, innermost = reduction
    return innermost and before <= MAX_ROW * after


def gain_by_rows(
    kernel: FusionCandidate, value: int, into: FusionCandidate, sizes: Mapping[int, tuple[float, float]]
) -> float | None:
    """Seconds that a reader gains if an op is inside it and both are a program for rows; None where that cannot be.

    Args:
        kernel: The op, with what is inside it.
        value: What it gives.
        into: The reader.
        sizes: Of values, the bytes of an element and of all that is in memory.
    """
    more = [other for other in kernel.asked if other not in into.asked]
    if not _go_by_rows(kernel, into) or len(into.asked) - 1 + len(more) > MAX_VALUES:
        return None
    cycles_per_s, bytes_per_s, _ = into.rates
    reads_s = into.reads_s - into.times[value] + sum([sizes[other][1] for other in more]) / bytes_per_s
    return into.seconds - kernel_seconds((kernel.row_cycles + into.row_cycles) / cycles_per_s, reads_s + into.written_s)


def take_in_by_rows(kernel: FusionCandidate, value: int, into: FusionCandidate, tensors: Sequence[Tensor]) -> None:
    """An op goes into a reader, and both are a program for rows."""
    del into.asked[value]
    into.places.clear()
    into.rows = kernel.rows or into.rows
    for other, count in kernel.asked.items():
        into.asked.setdefault(other, min(count, tensors[other].elements))
    into.row_cycles += kernel.row_cycles
    into.cycles = into.row_cycles
    into.copies += kernel.copies


def _go_by_rows(kernel: FusionCandidate, into: FusionCandidate) -> bool:
    """Whether a reader can have an op inside, where either is a program for rows or the op a reduction."""
    if not (kernel.tiled and into.tiled):
        return False
    rows = kernel.rows or into.rows
    if kernel.reduces:
        return bool(rows) and kernel.elements == rows and into.rows in (0, rows)
    if not kernel.rows:
        return True
    if into.rows:
        return into.rows == rows
    if into.reduces:
        return into.elements == rows
    return into.elements == kernel.elements or kernel.elements == rows
