"""The graph of a block's ops while groups of them become one op each: who depends on whom, and a valid order afterwards.

An op's level is the number of ops on the longest way to it: whatever it depends on has a lower one. A group that has become
one op depends on everything its members do. Groups within one level keep that true; only a group across levels leads a
search for dependencies upwards again, so that nothing else has to be searched for circles.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

from meshcast.workload import Op


class Contraction:
    """Ops of a block, some of them contracted to groups."""

    def __init__(self, ops: Sequence[Op], reads: Callable[[Op], Collection[int]], buffer: Mapping[int, int]) -> None:
        self._reads, self._buffer = [reads(op) for op in ops], buffer
        self._producers = {value: index for index, op in enumerate(ops) for value in op.results}
        self._groups: dict[int, list[int]] = {}  # by member

    @cached_property
    def _tree(self) -> PathTree:
        made, shown = self._producers.get, self._buffer.get
        return PathTree([max([made(shown(v, v), -1) for v in values], default=-1) for values in self._reads])

    @cached_property
    def _before(self) -> list[list[int]]:
        """What each op depends on; asked for where the tree does not say all."""
        return [_origins(values, producers=self._producers, buffer=self._buffer) for values in self._reads]

    @cached_property
    def _levels(self) -> list[int]:
        """Asked for where there is a group to contract."""
        levels: list[int] = []
        for before in self._before:
            levels.append(1 + max(map(levels.__getitem__, before), default=-1))
        return levels

    @cached_property
    def _highest(self) -> _PrefixMaximum:
        """The highest level of the groups that begin at a level or below it."""
        return _PrefixMaximum(1 + max(self._levels, default=0))

    def independent(self, members: Sequence[int]) -> list[int]:
        """The members, in order, that depend on none of the members chosen before them, groups aside."""
        chosen: list[int] = []
        targets: set[int] = set()
        for index in members:
            if not chosen or not self._depends(index, chosen, targets):
                chosen.append(index)
                targets.add(index)
        return chosen

    def _depends(self, index: int, earlier: Sequence[int], targets: set[int]) -> bool:
        first = earlier[0]
        if self._tree.leads(first, index) or self._tree.leads(earlier[-1], index):
            return True
        waiting, seen = [index], {index}
        while waiting:
            for origin in self._before[waiting.pop()]:
                if origin in targets:
                    return True
                if origin > first and origin not in seen:
                    seen.add(origin)
                    waiting.append(origin)
        return False

    def contract(self, members: Sequence[int]) -> bool:
        """Makes a group of ops that do not depend on each other; False, and nothing, where other groups make them."""
        if self._in_circle(members):
            return False
        group = list(members)
        self._groups |= dict.fromkeys(group, group)
        levels = [self._levels[member] for member in group]
        self._highest.raise_to(min(levels), max(levels))
        return True

    def _in_circle(self, members: Sequence[int]) -> bool:
        lowest, targets = min(self._levels[member] for member in members), set(members)
        waiting, seen = list(members), set(members)
        while waiting:
            for origin in self._before[waiting.pop()]:
                if origin in targets:
                    return True
                if origin not in seen and self._leads_above(self._levels[origin], lowest):
                    group = self._groups.get(origin, (origin,))
                    seen.update(group)
                    waiting.extend(group)
        return False

    def _leads_above(self, level: int, bound: int) -> bool:
        """Whether a search backwards from a level can come above another one, over groups across levels."""
        while level <= bound:
            further = self._highest.up_to(level)
            if further <= level:
                return False
            level = further
        return True


def in_order(ops: Sequence[Op], reads: Callable[[Op], Collection[int]], buffer: Mapping[int, int]) -> list[Op] | None:
    """The ops again, each after those whose results it reads; None where they need each other.

    The order is that of sweeps over the ops that take what is ready and leave the rest for the next sweep: an op's sweep is
    that of the last one it needs, or the next where that stands behind it.
    """
    producers = {value: index for index, op in enumerate(ops) for value in op.results}
    before = [_origins(reads(op), producers=producers, buffer=buffer) for op in ops]
    if all([max(needed, default=-1) < index for index, needed in enumerate(before)]):
        return list(ops)  # one sweep takes all, in the order they have
    after: list[list[int]] = [[] for _ in ops]
    missing = [len(needed) for needed in before]
    for index, needed in enumerate(before):
        for origin in needed:
            after[origin].append(index)
    ready = [(0, index) for index, count in enumerate(missing) if not count]
    sweeps = [0] * len(ops)
    made: list[Op] = []
    while ready:
        sweep, index = heapq.heappop(ready)
        made.append(ops[index])
        for reader in after[index]:
            sweeps[reader] = max(sweeps[reader], sweep + (reader < index))
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (sweeps[reader], reader))
    return made if len(made) == len(ops) else None


def _origins(values: Collection[int], *, producers: Mapping[int, int], buffer: Mapping[int, int]) -> list[int]:
    """The ops that make values or what they show, each once; none for what comes from outside."""
    return list({producers[shown] for value in values if (shown := buffer.get(value, value)) in producers})


class PathTree:
    """One path from every op to the ops it depends on: over the latest of them each time.

    Answers most questions about dependent ops at once, as the latest operand is what a chain of layers goes through.
    """

    def __init__(self, parents: Sequence[int]) -> None:
        """By the next op on each one's path; the path ends at one that does not stand before it, such as -1."""
        sizes = [1] * len(parents)  # of the ops whose paths go over each, itself included
        for index in range(len(parents) - 1, -1, -1):
            if 0 <= (parent := parents[index]) < index:
                sizes[parent] += sizes[index]
        # Places in a row in which those whose paths go over an op stand right behind it.
        places, free, behind = [0] * len(parents), [0] * len(parents), 0
        for index, parent in enumerate(parents):
            if 0 <= parent < index:
                place = free[parent]
                free[parent] = place + sizes[index]
            else:
                place, behind = behind, behind + sizes[index]
            places[index], free[index] = place, place + 1
        self._places, self._sizes = places, sizes

    def leads(self, first: int, last: int) -> bool:
        """Whether the path from `last` goes over `first`; where not, another one may."""
        return 0 < self._places[last] - self._places[first] < self._sizes[first]


class _PrefixMaximum:
    """Maxima over the first places of a row, after Fenwick (1994): both ways in O(log n)."""

    def __init__(self, size: int) -> None:
        self._row = [-1] * (size + 1)

    def raise_to(self, place: int, value: int) -> None:
        at = place + 1
        while at < len(self._row):
            self._row[at] = max(self._row[at], value)
            at += at & -at

    def up_to(self, place: int) -> int:
        at, found = place + 1, -1
        while at:
            found = max(found, self._row[at])
            at -= at & -at
        return found
