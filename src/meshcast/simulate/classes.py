"""Rank classes: ranks that are alike are simulated once.

Two ranks are alike if they run the same program at the same speed and if, in every collective, their groups have as many
members of every class: colour refinement. Colours start with what is known to differ (a stage, a speed), and every round
gives a rank the colour of

    (its colour, for each collective: the multiset of colours in its group)

until no class splits any more. A round costs O(ranks * collectives); the number of rounds is at most that of classes, and
small in practice: each collective spreads a difference to the whole group at once. After Weisfeiler and Leman (1968).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.base import OUTSIDE

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankClasses:
    """Classes of ranks.

    Attributes:
        of_rank: The class of every rank; classes are numbered by their lowest rank.
        sizes: Ranks of each class.
        first: The lowest rank of each class, which stands for it.
        together: For each collective asked about, which classes meet in its groups: `together[k][a, b]`.
    """

    of_rank: Ints
    sizes: Ints
    first: Ints
    together: tuple[npt.NDArray[np.bool_], ...]

    @property
    def count(self) -> int:
        """Number of classes."""
        return len(self.sizes)


def refine(start: Ints, groups: Sequence[Ints]) -> RankClasses:
    """The coarsest classes that keep `start` apart and that no collective can tell apart further.

    Args:
        start: What is known about each rank, as a number: different numbers stay in different classes.
        groups: For each collective, the group number of every rank, or `OUTSIDE`.
    """
    _, colours = np.unique(start, return_inverse=True)
    different = list({numbers.tobytes(): numbers for numbers in groups}.values())
    sorts = [_Sorted(numbers) for numbers in different]
    count = int(colours.max()) + 1 if colours.size else 0
    while True:
        key = _mixed(colours.astype(np.uint64))
        for each in sorts:  # one after the other, so that it matters which collective saw what
            key = _mixed(
                _mixed(key) + each.digest(colours)
            )  # mixed before: alone in a group, the sum is the key itself
        _, colours = np.unique(key, return_inverse=True)
        found = int(colours.max()) + 1 if colours.size else 0
        if found == count:
            break
        count = found
    _, first, inverse, sizes = np.unique(colours, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    of_rank = number[inverse.reshape(-1)]
    return RankClasses(
        of_rank=of_rank,
        sizes=sizes[order],
        first=first[order],
        together=tuple(_together(of_rank, first[order], numbers, count) for numbers in groups),
    )


class _Sorted:
    """Ranks sorted by group, once, to sum over groups in every round."""

    def __init__(self, numbers: Ints) -> None:
        self._order = np.argsort(numbers, kind="stable")
        ordered = numbers[self._order]
        self._begins = (
            np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if ordered.size else ordered
        )
        self._lengths = np.diff(np.append(self._begins, ordered.size))
        self._inside = numbers != OUTSIDE

    def digest(self, colours: Ints) -> Hashes:
        """A sum over each rank's group of its members' mixed colours: the same for the same multiset of colours.

        With C classes, two different multisets agree with a probability of about C^2 / 2^64, which is taken for never.
        """
        mixed = _mixed(colours.astype(np.uint64))
        sums = np.add.reduceat(mixed[self._order], self._begins) if mixed.size else mixed
        spread = np.empty_like(mixed)
        spread[self._order] = np.repeat(sums, self._lengths)
        return np.where(self._inside, spread, np.uint64(0))


def _mixed(values: Hashes) -> Hashes:
    """splitmix64 (Steele, Lea and Flood 2014): one to one, and neighbouring numbers become unrelated ones."""
    with np.errstate(over="ignore"):
        x: Any = (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Hashes = x ^ (x >> np.uint64(31))
    return mixed


def _together(of_rank: Ints, first: Ints, numbers: Ints, count: int) -> npt.NDArray[np.bool_]:
    """Which classes meet: those in the group of the rank that stands for a class; alone outside of all groups."""
    found = np.eye(count, dtype=np.bool_)
    inside = numbers != OUTSIDE
    group, member = np.divmod(np.unique(numbers[inside] * count + of_rank[inside]), count)
    for index in range(count):
        number = numbers[first[index]]
        if number != OUTSIDE:
            found[index, member[group == number]] = True
    return found
