"""`Counts`: what was seen after which context, with contexts that fall back on shorter ones.

Of contexts c1 (longest), c2, ..., the last of which is empty, what comes next is drawn by interpolation (Witten and Bell, 1991):

    P(x | ci) = n_i / (n_i + t_i) * count_i(x) / n_i + t_i / (n_i + t_i) * P(x | c(i+1))

with n_i observations of t_i different things behind ci. So a context that was seen rarely, with many different things behind
it, trusts the shorter one more.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

Context = tuple[Hashable, ...]


class Counts:
    """Counts of things behind contexts of one kind."""

    def __init__(self) -> None:
        self._seen: dict[Context, dict[Any, int]] = {}
        self._drawn: dict[Context, tuple[list[Any], list[int]]] = {}

    def see(self, contexts: Sequence[Context], thing: Any) -> None:
        """Counts a thing behind all of its contexts."""
        for context in contexts:
            here = self._seen.setdefault(context, {})
            here[thing] = here.get(thing, 0) + 1

    def draw(self, contexts: Sequence[Context], random: np.random.Generator) -> Any:
        """Something that may come behind a context, longest first."""
        for context in contexts:
            here = self._seen.get(context)
            if not here:
                continue
            if context not in self._drawn:
                self._drawn[context] = (list(here), np.cumsum(list(here.values())).tolist())
            things, sums = self._drawn[context]
            total = sums[-1]
            at = random.random() * (total + (len(things) if context != contexts[-1] else 0))
            if at < total:
                return things[bisect.bisect_right(sums, at)]
        return None

    def of(self, context: Context) -> dict[Any, int]:
        """Everything that was seen behind a context."""
        return self._seen.get(context, {})

    def to_json(self) -> list[Any]:
        """The counts as JSON."""
        return [
            [list(context), [[thing, count] for thing, count in here.items()]] for context, here in self._seen.items()
        ]

    @staticmethod
    def from_json(found: list[Any]) -> Counts:
        """The counts from what `to_json` made of them."""
        counts = Counts()
        counts._seen = {
            _hashable(context): {_hashable(thing): count for thing, count in here} for context, here in found
        }
        return counts


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
