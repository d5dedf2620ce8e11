"""Kernels of fusions that are alike: worked out once, and given to the others with their own values and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshcast.lower.fused_kernel import Member, fused_kernel
from meshcast.lower.kernel import Kernel
from meshcast.workload import Cost, Tensor


@dataclass(frozen=True, slots=True)
class _Kind:
    """The first kernel of a kind, and which of its fusion's values, in order of appearance, it reads, writes and updates."""

    first: Kernel
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    updates: tuple[int, ...]

    @staticmethod
    def of(kernel: Kernel, places: Mapping[int, int]) -> _Kind:
        kernel.cost_key, kernel.collective  # noqa: B018  # worked out here, they go to all of the kind
        reads, writes, updates = (
            tuple([places[value] for value in values]) for values in (kernel.reads, kernel.writes, kernel.updates)
        )
        return _Kind(kernel, reads, writes, updates)

    def at(self, values: Sequence[int], location: str) -> Kernel:
        """The kernel of other values, given in order of appearance."""
        pick = values.__getitem__
        return self.first.elsewhere(
            tuple(map(pick, self.reads)), tuple(map(pick, self.writes)), tuple(map(pick, self.updates)), location
        )


class FusedKernels:
    """Makes kernels of fusions.

    A fusion is known by its ops' names and costs, by which of them read what of which others, and by the types of all
    values: `fused_kernel` asks for nothing else but where the root stands in the program. Layers that a program
    repeats, and chains of equal links, are made of few kinds.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Begins with none; `tensors` are the types of all values, and may grow."""
        self._tensors = tensors
        self._known: dict[tuple[object, ...], _Kind] = {}
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
            self._known[kind] = _Kind.of(made, places)
            return made
        return known.at(list(places), members[-1][0].location)

    def _number(self, thing: Cost | Tensor) -> int:
        """The same for equal ones."""
        found = self._by_identity.get(id(thing))
        if found is None:
            found = self._numbers.setdefault(thing, len(self._numbers)), thing
            self._by_identity[id(thing)] = found
        return found[0]
