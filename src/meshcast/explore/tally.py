"""`Tally`: how far a search has come."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from meshcast.explore.point import Outcome


@dataclass(kw_only=True)
class Tally:
    """How far a search has come.

    Attributes:
        space: Points that there are.
        evaluated: Points that were predicted.
        infeasible: Points that cannot run, or not as the constraints ask, known by a prediction or by a bound; what went wrong is
            none of them: nobody knows whether it can.
        bounded: Points that a bound has left out because others are better.
        probes: Works about layers.
        below_bounds: Points whose step came out below their bound. None should: where one does, a bound is wrong, and so may be
            what was left out by it.
        alone: Points that differ from others in hardware alone and were not worked out with them, by why not.
    """

    space: int = 0
    evaluated: int = 0
    infeasible: int = 0
    bounded: int = 0
    probes: int = 0
    below_bounds: int = 0
    alone: Counter[str] = field(default_factory=Counter)

    def note(self, outcome: Outcome, *, allowed: bool) -> None:
        """Counts a point that was predicted, and whether it has a step and keeps to the constraints."""
        self.evaluated += 1
        self.infeasible += not allowed and outcome.status != "failed"
        if outcome.alone is not None:
            self.alone[outcome.alone] += 1
