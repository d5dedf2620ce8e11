"""`Length`: seconds of a step or block on one rank; and `Ranks`: what placing a block asks about those that run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from meshcast.base import made_quickly


@made_quickly
@dataclass(frozen=True, slots=True)
class Length:
    """Seconds of a step or block, from when its rank enters it.

    Attributes:
        all: With the gap after its last kernel.
        last: Without.
        free: How long the memory is free in it.
        waited: How long its collectives wait for ranks that come later.
    """

    all: float
    last: float
    free: float = 0.0
    waited: float = 0.0

    def times(self, trips: int) -> Length:
        """The length of so many equal ones in a row."""
        if not trips:
            return NOTHING
        return Length(trips * self.all, (trips - 1) * self.all + self.last, trips * self.free, trips * self.waited)

    def at_least(self, seconds: float) -> Length:
        """The length where something beside it takes at least so long."""
        more = seconds - self.all
        return self if more <= 0 else Length(seconds, max(self.last, seconds), self.free + more, self.waited)

    def then(self, other: Length) -> Length:
        """The length of both, one after the other; one that takes no time leaves the end where it is."""
        last = self.all + other.last if other.all else self.last
        return Length(self.all + other.all, last, self.free + other.free, self.waited + other.waited)


NOTHING = Length(0.0, 0.0)


class Ranks(Protocol):
    """One rank of each class that runs a block; classes are numbered from 0."""

    @property
    def entered(self) -> Sequence[float]:
        """When each enters the block."""

    def lengths(self, index: int, starts: Sequence[float]) -> Sequence[Length]:
        """The lengths of a step for each class; of a loop or branch that the classes enter at `starts`."""

    def parties(self, index: int) -> Sequence[int]:
        """A number for each class in a collective: classes with the same number meet in it and start together."""


class OneRank:
    """One rank that waits for nobody, or any number of equal ones."""

    entered: Sequence[float] = (0.0,)

    def __init__(self, lengths: Sequence[Length]) -> None:
        self.all = lengths  # by step

    def lengths(self, index: int, starts: Sequence[float]) -> Sequence[Length]:
        """Whenever it starts, it takes as long."""
        del starts
        return (self.all[index],)

    def parties(self, index: int) -> Sequence[int]:
        """One number for the only class: it meets ranks of its own kind alone."""
        del index
        return (0,)
