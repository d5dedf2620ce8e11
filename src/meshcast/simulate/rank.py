"""`Rank`: what is asked about one rank's step, whoever works it out."""

from __future__ import annotations

from typing import Protocol

from meshcast.simulate.executed import Executed
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length
from meshcast.simulate.timeline import Timeline


class Rank(Protocol):
    """One rank of a program with given times."""

    def length(self, block: BlockPlan) -> Length:
        """How long a block takes."""

    def executed(self, plan: BlockPlan) -> Executed:
        """Every kernel of a plan with how often it runs."""

    def timeline(self, block: BlockPlan, *, spans: bool = True, paths: bool = True) -> tuple[Timeline, Length]:
        """A block with all that runs in it."""
