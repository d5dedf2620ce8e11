"""How indices fall on the rows of a table, and what follows for one batch: different rows, cache misses, the hottest row.

A distribution is classes of rows that are alike: class c has `m_c` rows, each picked with probability `p_c`. Of `N`
look-ups drawn independently a row of c is picked `n_c = N p_c` times on average, by a Poisson law:

- different rows `u = sum m_c (1 - exp(-n_c))`, every one of which is read from memory once;
- a cache of `C` rows, read in random order, holds what was picked within its characteristic time `T` look-ups, where
  `sum m_c (1 - exp(-p_c T)) = C` (Che, Tung, Wang, IEEE JSAC 20(7), 2002); a row that comes again misses with
  `exp(-p_c T)`, so that there are `u + sum m_c (n_c - (1 - exp(-n_c))) exp(-p_c T)` misses;
- the hottest row comes `N max p_c` times, and its updates wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.base import UsageError
from meshcast.estimate import zipf_bins

Floats = npt.NDArray[np.float64]
ROUNDS, CLOSE = 60, 1e-12  # of Newton's method for a characteristic time, and the share of it that ends them

# Share of the rows that were touched, and of the look-ups that fell on them, by how often they came in one batch:
# locality_stats.txt of https://github.com/facebookresearch/dlrm_datasets (embedding_bag/2021, 856 tables, 65,536 samples),
# the bins by reuse from (0, 1] on.
PRESETS = {
    "meta-2021": (
        (0.473, 0.152, 0.139, 0.112, 0.072, 0.032, 0.011, 0.005, 0.002, 0.001),
        (0.069, 0.044, 0.068, 0.101, 0.121, 0.104, 0.073, 0.058, 0.052, 0.310),
    )
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Picked:
    """Classes of rows: how many each has, and the share of all look-ups that fall on it."""

    rows: Floats = field(repr=False)
    shares: Floats = field(repr=False)
    _parts: dict[int, Picked] = field(default_factory=dict, repr=False)
    _touched: dict[float, Floats] = field(default_factory=dict, repr=False)

    @cached_property
    def _all_rows(self) -> float:
        return float(self.rows.sum())

    @cached_property
    def chance(self) -> Floats:
        """Of one row of each class to be picked by one look-up."""
        return self.shares / self.rows

    def touched(self, look_ups: float) -> Floats:
        """Different rows of each class among so many look-ups; kept for the last number that was asked for."""
        if look_ups not in self._touched:
            self._touched.clear()
            self._touched[look_ups] = self.rows * -np.expm1(-look_ups * self.chance)
        return self._touched[look_ups]

    def different(self, look_ups: float) -> float:
        """Different rows among so many look-ups."""
        return float(np.sum(self.touched(look_ups)))

    def hottest(self, look_ups: float) -> float:
        """How often the most frequent row comes."""
        return float(look_ups * self.chance.max())

    def misses(self, look_ups: float, capacity: float) -> float:
        """Look-ups that a cache of `capacity` rows, empty at first, does not hold."""
        touched = self.touched(look_ups)
        different = float(touched.sum())
        if different <= capacity:
            return different
        again = look_ups * self.shares - touched
        return different + float(np.sum(again * np.exp(-self.chance * self._reach(capacity, look_ups))))

    def _reach(self, capacity: float, look_ups: float) -> float:
        """The characteristic time of a cache, in look-ups: in closed form where all rows are alike, else by Newton's method.

        What is held grows with the time, ever more slowly, so that each round from nothing on ends below the time that is
        looked for, and above the round before.
        """
        if len(self.rows) == 1:
            return float(-self.rows[0] * np.log1p(-min(capacity / self.rows[0], 1 - 1e-12)))
        reach = min(capacity, look_ups)  # no look-up brings more than a row
        for _ in range(ROUNDS):
            absent = np.exp(-self.chance * reach)
            missing = capacity - float(self._all_rows - self.rows @ absent)
            slope = float(self.shares @ absent)
            step = missing / slope if slope > 0 else 0.0
            reach = min(reach + max(step, 0.0), look_ups)
            if step <= CLOSE * reach:
                break
        return reach

    def missed_in_steady_state(self, look_ups: float, capacity: float) -> float:
        """Different rows of a batch that a cache of `capacity` rows, filled by the batches before, does not hold."""
        rows = float(self.rows.sum())
        if capacity >= rows:
            return 0.0
        reach = self._reach(capacity, 1e6 * rows)
        return float(np.sum(self.rows * -np.expm1(-look_ups * self.chance) * np.exp(-self.chance * reach)))

    def part(self, parts: int) -> Picked:
        """One of equal parts of the rows, the frequent ones spread over all parts."""
        if parts == 1:
            return self
        if parts not in self._parts:
            self._parts[parts] = Picked(rows=np.maximum(self.rows / parts, 1e-9), shares=self.shares)
        return self._parts[parts]


def missed_of_equal(rows: float, look_ups: float, capacity: float) -> float:
    """`Picked.misses` of rows that are all picked equally often, in closed form and plain numbers."""
    different = -rows * math.expm1(-look_ups / rows)
    if different <= capacity:
        return different
    return different + (look_ups - different) * (1 - min(capacity / rows, 1 - 1e-12))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What a table's file says of its indices: a kind and its numbers.

    `zipf`: the row of rank r with weight `r^-skew`. `histogram`: pairs (share of the rows, share of the look-ups), the
    frequent ones first. `counts`: (rows, look-ups) as they were counted in a sample; a row that was not seen has what Good
    and Turing leave for it, the share of the look-ups whose row came once.
    """

    kind: str = "uniform"
    skew: float = 0.0
    shares: tuple[tuple[float, float], ...] = ()

    def over(self, rows: int) -> Picked:
        """The classes of a table's rows."""
        if self.kind == "zipf" and self.skew and rows > 1:
            sizes, weights = zipf_bins(rows, self.skew)
            return Picked(rows=sizes, shares=weights / weights.sum())
        if self.kind == "histogram":
            pairs = np.array(_of_whole_rows([(share * rows, look_ups) for share, look_ups in self.shares]))
            return Picked(rows=pairs[:, 0], shares=pairs[:, 1])
        if self.kind == "counts":
            return self._counted(rows)
        return Picked(rows=np.array([float(rows)]), shares=np.array([1.0]))

    def _counted(self, rows: int) -> Picked:
        pairs = np.array(self.shares)  # rows that came k times, and k
        seen, look_ups = float(pairs[:, 0].sum()), float(pairs.prod(axis=1).sum())
        once = float(pairs[pairs[:, 1] == 1, 0].sum())
        unseen = max(0.0, rows - seen)
        left = once / look_ups if unseen else 0.0
        shares = pairs.prod(axis=1) / look_ups * (1 - left)
        if not left:
            return Picked(rows=pairs[:, 0], shares=shares)
        return Picked(rows=np.append(pairs[:, 0], unseen), shares=np.append(shares, left))

    def __str__(self) -> str:
        return f"zipf:{self.skew:g}" if self.kind == "zipf" else self.kind


def counted(indices: npt.NDArray[np.int64]) -> Distribution:
    """The distribution of a sample of indices: rows by how often they came."""
    _, times = np.unique(indices, return_counts=True)
    often, rows = np.unique(times, return_counts=True)
    return Distribution(kind="counts", shares=tuple((float(n), float(k)) for n, k in zip(rows, often, strict=True)))


def parse_distribution(text: str, *, where: str = "--indices") -> Distribution:
    """`uniform`, `zipf:1.05`, `histogram:0.01=0.6,0.99=0.4` (share of rows = share of look-ups) or a preset.

    Raises:
        UsageError: It is none of these.
    """
    kind, _, rest = text.strip().partition(":")
    try:
        if kind in ("", "uniform") and not rest:
            return Distribution()
        if kind == "zipf" and 0 <= (skew := float(rest)) <= 10:
            return replace(Distribution(kind="zipf"), skew=skew)
        if kind == "histogram":
            pairs = tuple((float(a), float(b)) for a, _, b in (part.partition("=") for part in rest.split(",")))
            return _histogram(pairs, text, where)
        if kind in PRESETS:
            rows, look_ups = (np.array(column) / sum(column) for column in PRESETS[kind])
            return Distribution(kind="histogram", shares=tuple(zip(rows.tolist(), look_ups.tolist(), strict=True)))
    except ValueError:
        pass
    raise UsageError(
        f"{text!r} is no distribution of indices", where=where,
        fix="write uniform, zipf:1.05, histogram:0.01=0.6,0.99=0.4 or " + ", ".join(PRESETS),
    )  # fmt: skip


def _of_whole_rows(classes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Classes of (rows, share of the look-ups), the frequent ones first, none of less than a row.

    A part of a row would be picked more often than there are look-ups: it is counted to the next class, the last to the one
    before it.
    """
    kept: list[tuple[float, float]] = []
    rows = shares = 0.0
    for each, share in sorted(classes, key=lambda pair: pair[1] / pair[0], reverse=True):
        rows, shares = rows + each, shares + share
        if rows >= 1:
            kept.append((rows, shares))
            rows = shares = 0.0
    if rows:
        before = kept.pop() if kept else (0.0, 0.0)
        kept.append((before[0] + rows, before[1] + shares))
    return kept


def _histogram(pairs: tuple[tuple[float, float], ...], text: str, where: str) -> Distribution:
    sums = [sum(column) for column in zip(*pairs, strict=True)]
    if not (all(min(pair) > 0 for pair in pairs) and all(abs(each - 1) <= 0.01 for each in sums)):
        raise UsageError(
            f"the shares of {text!r} add up to {sums[0]:g} of the rows and {sums[1]:g} of the look-ups", where=where,
            fix="write positive shares that add up to 1 on both sides",
        )  # fmt: skip
    return Distribution(kind="histogram", shares=tuple((a / sums[0], b / sums[1]) for a, b in pairs))
