"""Kernels of fusions that are alike: worked out once, and given to the others with their own values and places."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.lower.fused_kernel import Member, fused_kernel
from meshcast.lower.kernel import Kernel
from meshcast.workload.graph import Cost, Tensor


class FusedKernels:
    """Makes kernels of fusions.

    A fusion is known by its ops' names and costs, by which of them read what of which others, and by the types of all
    values: `fused_kernel` asks for nothing else but where the root stands in the program. Layers that a program
    repeats, and chains of equal links, are made of few kinds.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Begins with none; `tensors` are the types of all values, and may grow."""
        self._tensors = tensors
        # The first kernel of each kind, with the values of its fusion in order of appearance.
        self._known: dict[tuple[object, ...], tuple[Kernel, tuple[int, ...]]] = {}
        self._numbers: dict[Cost | Tensor, int] = {}  # of different ones, in order of appearance
        # The same by identity, each with its object, so that no other one can take that identity: costs have many fields, and
        # most ops of a program share those of others.
        self._by_identity: dict[int, tuple[int, Cost | Tensor]] = {}

    def kernel(self, members: Sequence[Member], *, cold: bool) -> Kernel:
        """`fused_kernel` of these members; `cold` if they read what no cache can hold yet."""
        places: dict[int, int] = {}  # of values, in order of appearance
        key: list[object] = [cold]
        for op, operands in members:
            redundant = op.redundant_flops if op.cost.matrix_flops else 0.0
            key += (op.name, self._number(op.cost), op.recomputed, redundant, len(operands))
            for value in (*operands, *op.results):
                key.append(places.setdefault(value, len(places)))
        key += [self._number(self._tensors[value]) for value in places]
        kind = tuple(key)
        known = self._known.get(kind)
        if known is None:
            made = fused_kernel(members, self._tensors, cold=cold)
            self._known[kind] = made, tuple(places)
            return made
        first, values = known
        return first.elsewhere(dict(zip(values, places, strict=True)), members[-1][0].location)

    def _number(self, thing: Cost | Tensor) -> int:
        """The same for equal ones."""
        found = self._by_identity.get(id(thing))
        if found is None:
            found = self._numbers.setdefault(thing, len(self._numbers)), thing
            self._by_identity[id(thing)] = found
        return found[0]
