"""Arrays without elements: nothing is launched for them, and what is summed over them is a fill.

XLA replaces an op whose result has no elements by a constant (zero_sized_hlo_elimination; collectives of a partitioned program
have no side effects, HloInstruction::HasSideEffect), and a product, convolution,
reduction or window over no elements by a broadcast of zero or of the initial value (algebraic_simplifier: HandleDot,
HandleConvolution, HandleReduce, HandleReduceWindow). PyTorch's kernels return before they launch where there is nothing to do,
and NCCL discards collectives of no elements (taskAppend in enqueue.cc).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshcast.workload import Attention, Op, OpKind, Tensor

# Over no elements these give the value that they start from.
_SUMMED = frozenset({OpKind.GEMM, OpKind.CONVOLUTION, OpKind.REDUCE, OpKind.WINDOW})


def empty_values(tensors: Sequence[Tensor]) -> frozenset[int]:
    """The values without elements; few programs have one."""
    return frozenset([value for value, tensor in enumerate(tensors) if not tensor.elements])


def without_nothing(ops: Sequence[Op], empty: frozenset[int]) -> Sequence[Op]:
    """The ops less those that make nothing but `empty` values; those that sum over one as fills of their results."""
    return list(_without(ops, empty)) if empty else ops


def _without(ops: Sequence[Op], empty: frozenset[int]) -> Iterator[Op]:
    for op in ops:
        if op.results and not op.blocks and empty.issuperset(op.results):
            if op.cost.kind is OpKind.HOST:  # which is called for its effects
                yield op
        elif _sums(op) and not empty.isdisjoint(op.operands):
            cost = replace(op.cost, kind=OpKind.ELEMENTWISE, geometry=None, matrix_flops=0.0, vector_flops=0.0)
            yield replace(op, cost=cost)
        else:
            yield op


def _sums(op: Op) -> bool:
    return op.cost.kind in _SUMMED or isinstance(op.cost.geometry, Attention)
