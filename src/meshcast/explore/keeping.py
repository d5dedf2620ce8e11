"""What is held of the points of a search: all while they are few, then those that can still be best or on the front."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.explore.exploration import front, grouped
from meshcast.explore.measures import Objective
from meshcast.explore.search import Found

MOST = 20_000


class Keeper:
    """Points as they come."""

    def __init__(self, objectives: Sequence[Objective], *, top: int, per: Sequence[str] = (), most: int = MOST) -> None:
        self._objectives, self._top, self._per, self._most = objectives, top, per, most
        self.found: list[Found] = []
        self.failed = 0  # of all that came, those that are forgotten among them
        self._limit = most

    def take(self, found: Found) -> None:
        """Notes a point; where there are too many, forgets those that are neither best nor on the front."""
        self.failed += found.outcome.status == "failed"
        self.found.append(found)
        if len(self.found) > self._limit:
            self.found = self._needed()
            self._limit = max(
                self._most, 2 * len(self.found)
            )  # a front may be long: it is not looked for at every point

    def _needed(self) -> list[Found]:
        kept: dict[int, Found] = {}
        allowed = [each for each in self.found if each.allowed]
        for members in grouped(allowed, self._per):
            members.sort(key=lambda each: (self._values(each)[0], each.point.number))
            kept |= {each.point.number: each for each in members[: self._top]}
        if len(self._objectives) > 1:
            kept |= {each.point.number: each for each in front(allowed, self._values)}
        return list(kept.values())

    def _values(self, found: Found) -> list[float]:
        return [objective.of(found.outcome, found.known) for objective in self._objectives]
