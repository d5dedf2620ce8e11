"""Fusions while they grow backwards from their roots: what they read from outside, kept up to date op by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meshcast.lower.products import is_plain
from meshcast.workload.graph import Op

Predicate = Callable[[int], bool]


class Growing:
    """The fusion of a root and what has joined it so far.

    Ops join in the reverse of program order. What one reads is made by ops before it, which have not joined yet, so it comes
    from outside until they do.
    """

    __slots__ = ("_joined", "_watched", "is_plain", "is_slow")

    def __init__(self, root: Op, operands: Sequence[int], watched: Mapping[int, Predicate]) -> None:
        """Begins with the root; of what comes from outside, the values that satisfy each of `watched` are kept."""
        self._watched: dict[int, tuple[Predicate, set[int]]] = {which: (watched[which], set()) for which in watched}
        self.is_plain = True  # whether all of its ops are plain arithmetic
        self.is_slow = False  # whether one of them computes a slow function
        self._joined: list[
            tuple[Op, Sequence[int]]
        ] = []  # since it was last asked what comes from outside: most never are
        self.add(root, operands)

    def add(self, op: Op, operands: Sequence[int]) -> None:
        """An op joins."""
        self.is_plain = self.is_plain and is_plain(op)
        self.is_slow = self.is_slow or bool(op.cost.transcendentals)
        if self._watched:
            self._joined.append((op, operands))

    def outside(self, which: int, op: Op, operands: Sequence[int] = ()) -> int:
        """How many values would come from outside if this op had joined, of those that the predicate is true for."""
        for joined, taken in self._joined:
            for predicate, outside in self._watched.values():
                outside.difference_update(joined.results)
                outside.update(filter(predicate, taken))
        self._joined.clear()
        predicate, outside = self._watched[which]
        fewer = sum(1 for value in set(op.results) if value in outside)
        return len(outside) - fewer + sum(1 for value in set(operands) if value not in outside and predicate(value))
