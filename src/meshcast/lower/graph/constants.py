"""Values that are known before a program runs, and such as have one element spread over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.workload import Op, OpKind, Tensor

_FOLDED = frozenset({OpKind.BROADCAST, OpKind.ELEMENTWISE, OpKind.SLICE, OpKind.MOVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownValues:
    """What can be told of values from what makes them.

    Attributes:
        constants: Constants and what is computed from them alone, which XLA's constant folding computes; numbers that count up
            are none.
        splats: Constants too, and what is broadcast from a single element.
    """

    constants: frozenset[int]
    splats: frozenset[int]


def known_values(ops: Sequence[Op], operands: Sequence[tuple[int, ...]], tensors: Sequence[Tensor]) -> KnownValues:
    """What is known of the values of a block.

    Args:
        ops: Its ops in order.
        operands: Their operands, views resolved.
        tensors: Types of all values.
    """
    constants: set[int] = set()
    spread: set[int] = set()
    for op, read in zip(ops, operands, strict=True):
        kind = op.cost.kind
        if kind is OpKind.GENERATE:
            if not op.name.endswith("iota"):
                constants.update(op.results)
        elif kind in _FOLDED and constants.issuperset(read):
            constants.update(op.results)
        elif kind is OpKind.BROADCAST and tensors[read[0]].elements == 1:
            spread.update(op.results)
    return KnownValues(constants=frozenset(constants), splats=frozenset(constants | spread))
