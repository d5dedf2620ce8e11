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
        """The kind that a kernel is the first of; `places` are those of its fusion's values."""
        kernel.cost_key  # noqa: B018  # worked out here, it goes to all of the kind
        reads, writes, updates = (
            tuple([places[value] for value in values]) for values in (kernel.reads, kernel.writes, kernel.updates)
        )
        return _Kind(kernel, reads, writes, updates)

    def at(self, values: Sequence[int], location: str) -> Kernel:
        """The kernel of other values, given in order of appearance."""
        pick = values.__getitem__
        reads, writes = tuple(map(pick, self.reads)), tuple(map(pick, self.writes))
        return self.first.elsewhere(reads, writes, tuple(map(pick, self.updates)) if self.updates else (), location)


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
        self._numbers: dict[Cost | Tensor, int] = {}  # of different ones, from 1 in order of appearance
        # The same by identity: costs have many fields, and most ops of a program share those of others.
        self._by_identity: dict[int, int] = {}
        self._identified: list[Cost | Tensor] = []  # kept, so that no other one can take the identity

    def kernel(self, members: Sequence[Member], *, cold: bool) -> Kernel:
        """`fused_kernel` of these members; `cold` if they read what no cache can hold yet."""
        places: dict[int, int] = {}  # of values, in order of appearance
        key: list[object] = [cold]
        number = self._by_identity.get  # asked here: there are half a dozen questions for every kernel
        for op, operands in members:
            cost = op.cost
            redundant = op.redundant_flops if op.location else 0.0  # without one, the next two say it
            key += (op.name, redundant, number(id(cost)) or self._numbered(cost), op.recomputed, len(operands))
            for value in operands + op.results:
                key.append(places.setdefault(value, len(places)))
        for tensor in map(self._tensors.__getitem__, places):
            key.append(number(id(tensor)) or self._numbered(tensor))
        kind = tuple(key)
        known = self._known.get(kind)
        if known is None:
            made = fused_kernel(members, self._tensors, cold=cold)
            self._known[kind] = _Kind.of(made, places)
            return made
        return known.at(list(places), members[-1][0].location)

    def _numbered(self, thing: Cost | Tensor) -> int:
        """The number of a cost or type that has not been seen before: the same for equal ones."""
        self._identified.append(thing)
        found = self._by_identity[id(thing)] = self._numbers.setdefault(thing, len(self._numbers) + 1)
        return found
