"""How often a fusion asks for what it reads, and the cycles that it takes: what joins it is computed as often.

After GpuHloCostAnalysis::HandleFusion (gpu_hlo_cost_analysis.cc). Arithmetic asks for its operands where it is asked itself;
whatever moves elements asks elsewhere, for the elements that it needs. A value that is asked for at its own element and at its
neighbours' (the differences of a grid's scheme) is computed for each of these, and with it all that leads to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshcast.lower.fused_kernels.fetched_sectors import Member
from meshcast.lower.fusion.cost_model import cycles_of
from meshcast.lower.fusion.growing_fusions import ASKING_OTHERWISE, is_index
from meshcast.workload import OpKind, Reduction, Tensor, Window

ITSELF = -1  # the place of what is asked for at the element that a kernel's thread has


@dataclass(slots=True)
class AskedValues:
    """What the fusion of a kernel asks for.

    Attributes:
        cycles: Of all its arithmetic.
        elements: Of each value, how many are asked for at each place: `ITSELF`, or that of an op that moves elements.
    """

    cycles: float = 0.0
    elements: dict[int, dict[int, float]] = field(default_factory=dict)

    def times(self, value: int, whole: int) -> tuple[bool, float]:
        """Whether a value of so many elements is asked for at its own, and how many times besides."""
        found = self.elements.get(value, {})
        return ITSELF in found, sum([asked for place, asked in found.items() if place != ITSELF]) / (whole or 1)


def asked_of(members: Sequence[Member], tensors: Sequence[Tensor]) -> AskedValues:
    """What a fusion asks for.

    `asked(v) = sum over places of asked(place)`, and for the operand `u` of an op that moves elements and gives `n` of them
    `asked(u) = n`, the share `n |u| / |v|` of a join's or pad's, at most `|u|` of an index, `n` times the window of a window.

    Args:
        members: Its ops with their operands, the root last.
        tensors: Types of all values.
    """
    result = AskedValues()
    root = members[-1][0]
    space = float(max([tensors[value].elements for value in root.results], default=0))
    for value in root.results:
        result.elements[value] = {ITSELF: space}
    for place in range(len(members) - 1, -1, -1):
        op, operands = members[place]
        at: dict[int, float] = {}
        for value in op.results:
            at.update(result.elements.get(value, {}))
        given = sum(at.values())
        result.cycles += given * cycles_of(op, tensors, by_constant=False)
        elementwise = op.cost.kind is OpKind.ELEMENTWISE
        for value in operands:
            found = result.elements.setdefault(value, {})
            for where, asked in (
                at.items() if elementwise else ((place, _share(members[place], value, given, tensors)),)
            ):
                found[where] = max(asked, found.get(where, 0.0))
    return result


def _share(member: Member, value: int, given: float, tensors: Sequence[Tensor]) -> float:
    """Elements of an operand that an op asks for which gives so many."""
    op, operands = member
    kind, geometry, elements = op.cost.kind, op.cost.geometry, tensors[value].elements
    if kind is OpKind.REDUCE and isinstance(geometry, Reduction):
        return given * elements / max(1, tensors[op.results[0]].elements)
    if kind not in ASKING_OTHERWISE:
        return given
    if isinstance(geometry, Window):
        return given * math.prod(geometry.window)
    if kind is OpKind.MOVE:
        return min(given, given * elements / max(1, tensors[op.results[0]].elements))
    if kind is not OpKind.GATHER or is_index(value, operands, tensors):
        return min(given, float(elements))
    return given
