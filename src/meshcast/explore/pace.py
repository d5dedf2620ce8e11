"""How far a search is, and how long the rest takes: one estimate over both that it does, bounds and predictions.

Works about layers that bounds may still ask for are counted. How many points will be predicted is not known before the end: of
those that may still be among the best, some are beaten by what is found meanwhile. Both kinds take what works of their kind
have taken:

    left = layers_left * seconds_a_layer + points_left * seconds_a_point
    points_left = open * (predicted + 1) / (predicted + beaten + 2)

by Laplace's rule of succession from the points that are open no more. These are counted from when as many are predicted as
are wanted, for nobody is beaten before; until then all that is known is that between so many and all of the open ones will be
predicted, and `points_left` is the geometric mean of both. The first works load programs and libraries, and say nothing of the
others' pace.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SAMPLED = 400  # points that are looked at to see how many are open: all of a small space


@dataclass(kw_only=True)
class SearchPace:
    """What a search has done, in which time.

    Attributes:
        kinds: Works about layers that bounds may ask for.
        top: Points that are wanted.
        clock: What tells the time.
    """

    kinds: int = 0
    top: int = 0
    clock: Callable[[], float] = field(default_factory=lambda: time.monotonic)
    _began: float = field(init=False)
    _missing: float = 1.0
    _told: float = field(init=False)
    _rounds: int = 0
    _first: tuple[int, float] | None = (
        None  # points that were predicted, and open, when as many were predicted as are wanted
    )
    _seconds: dict[str, float] = field(default_factory=lambda: {"layers": 0.0, "point": 0.0})
    _works: dict[str, int] = field(default_factory=lambda: {"layers": 0, "point": 0})

    def __post_init__(self) -> None:
        self._began = self._told = self.clock()

    def note(self, *, layers: int, points: int, seconds: float) -> None:
        """Notes works that were done side by side; those of a round with both kinds share its time equally."""
        self._rounds += 1
        if self._rounds == 1 or not layers + points:
            return
        for kind, count in (("layers", layers), ("point", points)):
            self._works[kind] += count
            self._seconds[kind] += seconds * count / (layers + points)

    def least_s(self, *, layers: int, open_points: float) -> float | None:
        """Seconds that the rest takes at least: what is told until a point is timed, for one takes longer than layers do.

            least = (layers_left + min(wanted, open)) * seconds_a_layer

        None once a point is timed, and while nothing tells the pace.
        """
        if self._works["point"] or not self._works["layers"]:
            return None
        works = max(self.kinds - layers, 0) + min(self.top, open_points)
        return works * self._seconds["layers"] / self._works["layers"]

    def left_s(self, *, layers: int, predicted: int, open_points: float, under_way: int = 0) -> float | None:
        """Seconds that the rest takes; None while nothing tells the pace.

        Args:
            layers: Works about layers that are done.
            predicted: Points that are.
            open_points: Points that may still be among the best.
            under_way: Points among them that are predicted by now, with which the others have not been compared yet.
        """
        each = {kind: self._seconds[kind] / count for kind, count in self._works.items() if count}
        if not each:
            return None
        a_layer = each.get("layers", each.get("point", 0.0))
        a_point = each.get("point", a_layer)
        if predicted >= self.top and self._first is None:
            self._first = predicted, open_points
        if self._first is None:
            points = math.sqrt(min(self.top, open_points) * open_points) - under_way
        else:
            before, were_open = self._first
            chance = (predicted - before + 1) / (max(were_open - open_points, predicted - before) + 2)
            points = (open_points - under_way) * chance
        return max(self.kinds - layers, 0) * a_layer + max(points, 0.0) * a_point

    def share(self, left_s: float | None) -> float:
        """The share of the search that is done: the time that has passed of all that it takes, by what is left now.

            missing = min(left / (left + passed), missing before * left / (left + passed since then))

        Where more is left than was thought it grows on as what is left gets done: it neither goes back nor stands still.
        """
        now = self.clock()
        since, self._told = now - self._told, now
        if left_s == 0:
            self._missing = 0.0
        elif left_s is not None:
            passed = now - self._began
            self._missing = min(left_s / (left_s + passed), self._missing * left_s / (left_s + since))
        return 1.0 - self._missing
