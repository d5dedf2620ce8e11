"""Fusions while they grow backwards from their roots: what they read from outside, kept up to date op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshcast.lower.products import is_plain
from meshcast.workload import Op

Predicate = Callable[[int], bool]


class Growing:
    """The fusion of a root and what has joined it so far.

    Ops join in the reverse of program order. What one reads is made by ops before it, which have not joined yet, so it comes
    from outside until they do.
    """

    __slots__ = ("_is_plain", "_is_slow", "_joined", "_judged", "_outside")

    def __init__(self, root: Op, operands: Sequence[int]) -> None:
        """Begins with the root."""
        self._joined = [(root, operands)]
        self._judged = 0  # how many of those that joined the next two are true of
        self._is_plain = True
        self._is_slow = False
        # By what is asked for: how many of those that joined are seen to, and what they take from outside.
        self._outside: dict[int, tuple[int, set[int]]] = {}

    def add(self, op: Op, operands: Sequence[int]) -> None:
        """An op joins."""
        self._joined.append((op, operands))

    @property
    def is_plain(self) -> bool:
        """Whether all of its ops are plain arithmetic."""
        self._judge()
        return self._is_plain

    @property
    def is_slow(self) -> bool:
        """Whether one of its ops computes a slow function."""
        self._judge()
        return self._is_slow

    def _judge(self) -> None:
        """Looks at the ops that have joined since: of most fusions nobody asks."""
        for op, _ in self._joined[self._judged :]:
            self._is_plain = self._is_plain and is_plain(op)
            self._is_slow = self._is_slow or bool(op.cost.transcendentals)
        self._judged = len(self._joined)

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
