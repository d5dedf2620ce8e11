"""Fusions while they grow backwards from their roots: what they read from outside, kept up to date op by op."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from meshcast.lower.products import is_plain
from meshcast.workload import Op, OpKind, Tensor, Window

Predicate = Callable[[int], bool]
# What Triton's row fusions cannot index by.
_NOT_IN_ROWS = frozenset({OpKind.GATHER, OpKind.MOVE})
# Take every element of an operand once at the most.
_PARTS = frozenset({OpKind.MOVE, OpKind.UPDATE, OpKind.SCATTER})
# Ask for other numbers of an operand's elements than they give themselves.
ASKING_OTHERWISE = _PARTS | {OpKind.WINDOW, OpKind.GATHER}


class Growing:
    """The fusion of a root and what has joined it so far.

    Ops join in the reverse of program order. What one reads is made by ops before it, which have not joined yet, so it comes
    from outside until they do.
    """

    __slots__ = (
        "_is_indexable",
        "_is_plain",
        "_is_unary",
        "_joined",
        "_judged",
        "_outside",
        "asking",
        "bytes_per_s",
        "cached_per_s",
        "copies",
        "cycles",
        "evaluated",
        "loaded",
        "moved",
        "rate",
        "read",
        "space",
        "written",
    )

    def __init__(self, root: Op, operands: Sequence[int], space: int = 0) -> None:
        """Begins with the root, over so many elements."""
        self.space = space
        self.copies = 1  # of ops in its code: one for every place that asks for them
        self.cycles = 0.0  # of arithmetic, over all its elements
        self.rate = 1.0  # cycles a second that it may do, where its time is asked for
        self.bytes_per_s = 1.0  # that it may read, where its time is asked for
        self.cached_per_s = 1.0  # the same of what is in a cache
        self.loaded = 1.0  # bytes that are loaded for one that is needed
        self.moved: dict[int, float] = {}  # bytes of every value that it reads from outside
        self.read = 0.0  # all of them
        self.written = root.cost.written_bytes
        # By the place of a member that reads something: which ops ask for its operands at places of their own, itself unless it
        # is arithmetic, and how often each of its operands' elements is computed for that.
        self.asking: dict[int, tuple[frozenset[int], int]] = {}
        self.evaluated: dict[int, int] = {}  # by the place of a member: how many of its elements are computed
        self._joined = [(root, operands)]
        self._judged = 0  # how many of those that joined the next three are true of
        self._is_plain = True
        self._is_unary = True
        self._is_indexable = True
        # By what is asked for: how many of those that joined are seen to, and what they take from outside.
        self._outside: dict[int, tuple[int, set[int]]] = {}

    def add(self, op: Op, operands: Sequence[int]) -> None:
        """An op joins."""
        self._joined.append((op, operands))

    def spoil(self, loaded: float) -> None:
        """Has so many bytes loaded for one that is needed, where that is more than before."""
        if loaded > self.loaded:
            self.bytes_per_s *= self.loaded / loaded
            self.loaded = loaded

    def set_rates(self, rates: tuple[float, float, float]) -> None:
        """Cycles and bytes a second, from memory and from caches."""
        self.rate, self.bytes_per_s, self.cached_per_s = rates

    @property
    def is_plain(self) -> bool:
        """Whether all of its ops are plain arithmetic."""
        self._judge()
        return self._is_plain

    @property
    def is_unary(self) -> bool:
        """Whether each of its ops is a function of one operand."""
        self._judge()
        return self._is_unary

    @property
    def is_indexable(self) -> bool:
        """Whether Triton can index by all of its ops."""
        self._judge()
        return self._is_indexable

    def _judge(self) -> None:
        """Looks at the ops that have joined since: of most fusions nobody asks."""
        for op, operands in self._joined[self._judged :]:
            self._is_plain = self._is_plain and is_plain(op)
            self._is_unary = self._is_unary and op.cost.kind is OpKind.ELEMENTWISE and len(operands) == 1
            self._is_indexable = self._is_indexable and is_indexable(op)
        self._judged = len(self._joined)

    def grow(self, result: int, cycles: float, copies: int, reads: Mapping[int, float]) -> None:
        """Counts the arithmetic of an op by its result, the places that ask for it, and what is read in its stead."""
        self.cycles += cycles
        self.copies += copies
        moved, read = self.moved, self.read
        if result in moved:
            read -= moved.pop(result)
        for value, size in reads.items():
            read += size - moved.get(value, 0.0)
            moved[value] = size
        self.read = read

    def outside(self, which: int, predicate: Predicate, op: Op, operands: Sequence[int] = ()) -> int:
        """How many values would come from outside if this op had joined, of those that the predicate is true for.

        Args:
            which: A number for the predicate, which is the same whenever it is asked for by that number.
            predicate: Of values.
            op: The op.
            operands: What it reads, where that counts.
        """
        seen, outside = self._outside.get(which) or (0, set())
        for joined, taken in self._joined[seen:]:
            outside.difference_update(joined.results)
            outside.update(filter(predicate, taken))
        self._outside[which] = len(self._joined), outside
        fewer = len(outside.intersection(op.results))
        if not operands:
            return len(outside) - fewer
        return len(outside) - fewer + sum([value not in outside and predicate(value) for value in set(operands)])


def is_indexable(op: Op) -> bool:
    """Whether Triton's row fusions can index by an op; where not, what it gives is copied first."""
    return op.cost.kind not in _NOT_IN_ROWS and not (op.cost.kind is OpKind.SLICE and op.name.endswith("dynamic_slice"))


def asked_elements(
    fusion: Growing,
    places: frozenset[int],
    value: int,
    members: tuple[Sequence[Op], Sequence[tuple[int, ...]]],
    tensors: Sequence[Tensor],
) -> int:
    """How many elements of a value places ask for: those that they give, a share where they join or pad, an index once.

    Args:
        fusion: What they have joined.
        places: Of ops of the fusion.
        value: What they ask for.
        members: The ops of the block, and their operands with views resolved.
        tensors: Types of all values.
    """
    asked, elements = 0, tensors[value].elements
    ops, operands = members
    for place in places:
        given, op = fusion.evaluated.get(place) or fusion.space * fusion.asking[place][1], ops[place]
        kind, window = op.cost.kind, op.cost.geometry
        if kind in ASKING_OTHERWISE:
            if kind is OpKind.MOVE:
                given = min(given, given * elements // (tensors[op.results[0]].elements or 1))
            elif kind in _PARTS or (kind is OpKind.GATHER and is_index(value, operands[place], tensors)):
                given = min(given, elements)
            elif isinstance(window, Window):
                given *= math.prod(window.window)
        asked += given
    return asked


def is_index(value: int, gathered: tuple[int, ...], tensors: Sequence[Tensor]) -> bool:
    """Whether a value is a gather's indices, or as many elements that they come from: asked for once (`HandleGather`)."""
    table, *indices = gathered
    return value != table and any(tensors[value].elements == tensors[each].elements for each in indices)
