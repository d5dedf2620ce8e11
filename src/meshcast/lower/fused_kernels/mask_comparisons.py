"""Whether a kernel's masks compare places with what it reads, and not with each other.

Two masks of scores are made of countings in the kernel that applies them: a causal one compares rows with columns, which is the
same for all heads and sequences; one up to a length compares columns with a number of each sequence, which it reads. XLA's tiles
take rows of several heads together for the first, which they share, and not for the second.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.lower.fused_kernels.fetched_sectors import Member
from meshcast.lower.fused_kernels.kernel_flags import short_name
from meshcast.workload import OpKind

_MOVED = frozenset({OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.VIEW, OpKind.SLICE, OpKind.TRANSPOSE})


def compares_with_what_it_reads(members: Sequence[Member]) -> bool:
    """Whether places are compared by a kernel's ops, always with something that is not made of places and constants."""
    places: set[int] = set()  # values made of countings, and of constants beside them
    constants: set[int] = set()
    found = False
    for op, operands in members:
        name = short_name(op.name)
        if op.cost.kind is OpKind.GENERATE:
            (places if name == "iota" else constants).update(op.results)
            continue
        if op.cost.kind not in _MOVED or not operands:
            continue
        known = [value in places or value in constants for value in operands]
        counted = any([value in places for value in operands])
        if name == "compare" and counted:
            if all(known):
                return False
            found = True
        elif all(known):
            (places if counted else constants).update(op.results)
    return found
