"""Kernels of fusions that are alike: worked out once, and given to the others with their own values and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshcast.lower.fused_kernels.fetched_sectors import Member, last_transposes
from meshcast.lower.fused_kernels.fused_kernel import fused_kernel
from meshcast.lower.fusion.coalescing import is_tiled
from meshcast.lower.kernel import Kernel, KernelKind
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
        reads, writes, updates = (
            tuple([places[value] for value in values]) for values in (kernel.reads, kernel.writes, kernel.updates)
        )
        return _Kind(kernel, reads, writes, updates)

    def at(self, values: Sequence[int], location: str) -> Kernel:
        """The kernel of other values, given in order of appearance."""
        self.first.cost_key  # noqa: B018  # worked out once there are several, it goes to all others of the kind
        pick = values.__getitem__
        reads, writes = tuple(map(pick, self.reads)), tuple(map(pick, self.writes))
        return self.first.elsewhere(reads, writes, tuple(map(pick, self.updates)) if self.updates else (), location)


@dataclass(slots=True)
class _Outlined:
    """Fusions whose ops cost the same in the same order. The first is described once there is another to compare it with."""

    first: tuple[Sequence[Member], Kernel] | None
    kinds: dict[tuple[object, ...], _Kind]


class FusedKernels:
    """Makes kernels of fusions.

    A fusion is known by its ops' names and costs, by which of them read what of which others, and by the types of all
    values: `fused_kernel` asks for nothing else but where the root stands in the program. Layers that a program
    repeats, and chains of equal links, are made of few kinds.
    """

    def __init__(self, tensors: Sequence[Tensor], *, tiles: bool = False) -> None:
        """Begins with none.

        Args:
            tensors: Types of all values, which may grow.
            tiles: Whether transposes at the end of fusions go through tiles in shared memory.
        """
        self._tensors, self._tiles = tensors, tiles
        self._outlined: dict[tuple[object, ...], _Outlined] = {}
        self._numbers: dict[Cost | Tensor, int] = {}  # of different ones, from 1 in order of appearance
        # The same by identity: costs have many fields, and most ops of a program share those of others.
        self._by_identity: dict[int, int] = {}
        self._identified: list[Cost | Tensor] = []  # kept, so that no other one can take the identity

    def kernel(self, members: Sequence[Member], *, cold: bool) -> Kernel:
        """`fused_kernel` of these members; `cold` if they read what no cache can hold yet."""
        number = self._by_identity.get
        costs = [number(id(op.cost)) or self._numbered(op.cost) for op, _ in members]
        outline = (cold, *costs)
        alike = self._outlined.get(outline)
        if alike is None:
            made = self._made(members, cold=cold)
            self._outlined[outline] = _Outlined((members, made), {})
            return made
        if alike.first is not None:
            kind, places = self._described(alike.first[0])
            alike.kinds[kind] = _Kind.of(alike.first[1], places)
            alike.first = None
        kind, places = self._described(members)
        known = alike.kinds.get(kind)
        if known is None:
            made = self._made(members, cold=cold)
            alike.kinds[kind] = _Kind.of(made, places)
            return made
        return known.at(list(places), members[-1][0].location)

    def _made(self, members: Sequence[Member], *, cold: bool) -> Kernel:
        """`fused_kernel` of these members, with the flag of those whose last transposes go through tiles."""
        made = fused_kernel(members, self._tensors, cold=cold)
        if not self._tiles or len(members) == 1 or made.kind is not KernelKind.LOOP_FUSION:
            return made
        last = last_transposes(members, set(members[-1][0].results))
        tiled = any(not last.isdisjoint(op.results) and is_tiled(op, self._tensors) for op, _ in members)
        return replace(made, flags=made.flags | {"tiles"}) if tiled else made

    def _described(self, members: Sequence[Member]) -> tuple[tuple[object, ...], dict[int, int]]:
        """All but its ops' costs that a fusion is known by; and its values with their places in order of appearance."""
        key: list[object] = []
        values: list[int] = []  # all that they touch, as often as they do
        number = self._by_identity.get
        for op, operands in members:
            redundant = op.redundant_flops if op.location else 0.0  # without one, its cost and the next say it
            key += (op.name, redundant, op.recomputed, len(operands), len(op.results))
            values += operands
            values += op.results
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        key += map(places.__getitem__, values)
        key += [number(id(tensor)) or self._numbered(tensor) for tensor in map(self._tensors.__getitem__, places)]
        return tuple(key), places

    def _numbered(self, thing: Cost | Tensor) -> int:
        """The number of a cost or type that has not been seen before: the same for equal ones."""
        self._identified.append(thing)
        found = self._by_identity[id(thing)] = self._numbers.setdefault(thing, len(self._numbers) + 1)
        return found
