"""An order of steps that stays valid while pairs of them become one (after Pearce and Kelly, 2006: dynamic topological sort).

Whatever a step waits for stands before it. So a way from one step to another can only go over steps that stand between them, and
a search between two neighbours in program order is short, however long the program is. When two steps become one, what the later
one waits for and stands between them moves before, and what waits for the earlier one and stands before any of that moves behind;
nothing else moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from meshcast.lower.graph.contraction import PathTree

# Steps that a search between two looks at before it gives up: they count as connected then, and stay apart.
MAX_SEARCHED = 1024


class StepOrder:
    """Steps by number, with their places; a step that another one was merged into goes on under its own number."""

    def __init__(self, before: Sequence[set[int]]) -> None:
        """Begins with steps in order, each with the earlier ones that it waits for."""
        self._before = [set(waits) for waits in before]
        self._after: list[set[int]] = [set() for _ in before]
        for index, waits in enumerate(before):
            for earlier in waits:
                self._after[earlier].add(index)
        self._places = list(range(len(before)))
        self._tree = PathTree([max(waits, default=-1) for waits in before])  # of ways that merging never cuts
        self._searched: tuple[int, int, set[int] | None] = (
            -1,
            -1,
            None,
        )  # two steps, and what was found between them last

    @property
    def places(self) -> Sequence[int]:
        """Of every step; those of steps that are merged into others mean nothing."""
        return self._places

    def connected(self, first: int, second: int, *, passing_on: bool = False) -> bool:
        """Whether one of two steps waits for the other; where one passes its result on to the other, over a third one."""
        low, high = sorted((first, second), key=self._places.__getitem__)
        if low in self._before[high]:
            if not passing_on:
                return True
        elif self._tree.leads(low, high):
            return True
        between = self._waited_for(low, high)
        self._searched = low, high, between
        return between is None or low in between

    def merge(self, first: int, second: int) -> None:
        """The second step becomes a part of the first; asked for where they are not connected."""
        places = self._places
        low, high = sorted((first, second), key=places.__getitem__)
        bounds = places[low], places[high]
        *asked, needed = self._searched  # for this, mostly: nothing has moved since
        if asked != [low, high] or needed is None:
            needed = self._between(self._before, high, *bounds)
        # What waits and stands behind everything that is needed stays where it is.
        last = max([places[step] for step in needed], default=bounds[0])
        waiting = self._between(self._after, low, bounds[0], last)
        self._searched = -1, -1, None
        order = [*sorted(needed, key=places.__getitem__), first, *sorted(waiting, key=places.__getitem__)]
        pool = sorted([bounds[0], *[places[step] for step in (*needed, *waiting)]])
        for step, place in zip(order, pool, strict=True):
            places[step] = place
        self._join(first, second)

    def _waited_for(self, low: int, high: int) -> set[int] | None:
        """Steps between two that the later one waits for; None where too many would have to be looked at.

        The search ends with the earlier one, which is then among them, if a way of several edges leads there. What stands
        first is looked at first, as it is next to that one.
        """
        places, before = self._places, self._before
        first, last = places[low], places[high]
        found = {step for step in before[high] if first < places[step] < last}
        waiting = [(places[step], step) for step in found]
        heapify(waiting)
        while waiting:
            for step in before[heappop(waiting)[1]]:
                if step not in found and places[step] >= first:
                    found.add(step)
                    if step == low:
                        return found
                    heappush(waiting, (places[step], step))
            if len(found) > MAX_SEARCHED:
                return None
        return found

    def _between(self, edges: Sequence[set[int]], start: int, low: int, high: int) -> set[int]:
        """Steps at places between two that some edges lead to from the step at one of these."""
        places = self._places
        found = {step for step in edges[start] if low < places[step] < high}
        waiting = list(found)
        while waiting:
            for step in edges[waiting.pop()]:
                if step not in found and low < places[step] < high:
                    found.add(step)
                    waiting.append(step)
        return found

    def _join(self, first: int, second: int) -> None:
        for edges, others in ((self._before, self._after), (self._after, self._before)):
            for step in edges[second]:
                others[step].discard(second)
                others[step].add(first)
            edges[first] |= edges[second]
            edges[second] = set()
            edges[first] -= {first, second}
        # What was an edge between both is none any more.
        self._after[first].discard(second)
        self._before[first].discard(second)
