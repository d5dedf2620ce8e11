"""Ops that compute what one before them did: XLA's hlo_cse. Their results are other names of the first one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.workload import Op


def without_equal_ops(ops: Sequence[Op], buffer: dict[int, int]) -> list[Op]:
    """The ops without those that are equal to an earlier one (`Op.equal`); the others read the first one's results.

    Args:
        ops: A block's live ops in order.
        buffer: The value whose bytes another one shows; what was equal is added.
    """
    made = {value for op in ops for value in op.results}
    shown: dict[int, int] = {}
    left: list[Op] = []
    for op in ops:
        if op.equal and made.issuperset(op.equal):  # else the first one was dropped
            shown.update(zip(op.results, op.equal, strict=True))
            continue
        if not shown.keys().isdisjoint(op.operands):
            op = replace(op, operands=tuple([shown.get(value, value) for value in op.operands]))
        left.append(op)
    buffer.update(shown)
    return left
