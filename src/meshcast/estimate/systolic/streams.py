"""The order in which an array wants an operand's words, fold by fold, and the refills that this takes.

Two orders occur. What streams through the array is skewed: cell row c gets its words c cycles late, so a cycle wants a
diagonal of the operand; SCALE-Sim writes such operands down by diagonals of all folds under each other. What stays in the
cells is loaded from its last row to its first, and written down by rows. In both a cycle wants consecutive words, and this is
what makes a closed form: the words of a cycle are an interval `[first, last]` of the written-down order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from meshcast.estimate.systolic.layer import Integers
from meshcast.estimate.systolic.ring import Ring

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refills:
    """When a fold's misses happen: cycles of the fold, how often the window moves in each, where it then begins."""

    cycles: Integers
    moves: Integers
    start: int


class Stream(Protocol):
    """An operand as one fold after the other wants it."""

    @property
    def ring(self) -> Ring:
        """The operand in its scratchpad."""
        ...

    def refills(self, column_fold: int, row_fold: int, start: int) -> Refills:
        """The misses of a fold, given where the window begins."""
        ...


def gathered(cycles: Integers, moves: Integers, start: int) -> Refills:
    """Moves of the same cycle added up; cycles ascend."""
    if len(cycles) > 1 and np.any(cycles[1:] == cycles[:-1]):
        cycles, inverse = np.unique(cycles, return_inverse=True)
        moves = np.bincount(inverse, weights=moves).astype(np.int64)
    return Refills(cycles=cycles, moves=moves, start=start)


@dataclass(frozen=True, kw_only=True)
class DiagonalStream:
    """The operand that streams through the array: blocks of `length` words in each of up to `width` lanes, by diagonals.

    Attributes:
        lanes: Lanes of all blocks together; the last block may have fewer than `width`.
        delay: Cycles of a fold before its first word.
        by_columns: Whether a fold's block is that of its column (`os` filters) instead of its row.
    """

    ring: Ring
    length: int
    width: int
    lanes: int
    delay: int
    by_columns: bool = False
    _known: dict[tuple[int, int], Refills] = field(default_factory=dict, repr=False)
    _groups: dict[int, tuple[Integers, Integers]] = field(default_factory=dict, repr=False)

    @cached_property
    def blocks(self) -> int:
        """Blocks that the lanes are cut into."""
        return -(-self.lanes // self.width)

    def refills(self, column_fold: int, row_fold: int, start: int) -> Refills:
        """The misses of a fold: after the first word the wanted groups only ascend, and every `step` of them is one."""
        block = column_fold if self.by_columns else row_fold
        found = self._known.get((block, start))
        if found is None:
            found = self._known[block, start] = self._walked(block, start)
        return found

    def _walked(self, block: int, start: int) -> Refills:
        first_groups, last_groups = self.wanted(block)
        ring = self.ring
        outside = ring.groups - ring.active
        if ring.step and len(last_groups) > 1 and np.max(first_groups[1:] - last_groups[:-1]) > outside:
            return self._walked_by_groups(first_groups, last_groups, start)
        jump = ring.moves(start, int(first_groups[0]))
        begin = ring.moved(start, jump)
        begin -= ring.groups if begin > first_groups[0] else 0
        edges = np.arange(begin + ring.active, int(last_groups[-1]) + 1, ring.step) if ring.step else _NONE
        cycles = np.searchsorted(last_groups, edges) + self.delay
        moves = np.ones(len(edges), dtype=np.int64)
        end = (begin + len(edges) * ring.step) % ring.groups
        if jump:
            cycles, moves = np.concatenate(([self.delay], cycles)), np.concatenate(([jump], moves))
        return gathered(cycles, moves, end)

    def _walked_by_groups(self, first_groups: Integers, last_groups: Integers, start: int) -> Refills:
        """One group after the other: where nearly all are inside, wanted ones can lie on both sides of the rest."""
        cycles, moves = [], []
        for cycle, (first, last) in enumerate(zip(first_groups.tolist(), last_groups.tolist(), strict=True)):
            for group in range(first, last + 1):
                made = self.ring.moves(start, group)
                if made:
                    start = self.ring.moved(start, made)
                    cycles.append(cycle + self.delay)
                    moves.append(made)
        return gathered(np.array(cycles, dtype=np.int64), np.array(moves, dtype=np.int64), start)

    def wanted(self, block: int) -> tuple[Integers, Integers]:
        """(the groups of the first, of the last word) that each diagonal of a block wants."""
        if block not in self._groups:
            lanes = min(self.width, self.lanes - block * self.width)
            diagonals = np.arange(block * self.length, (block + 1) * self.length + lanes - 1, dtype=np.int64)
            first = self._before(diagonals) + self._of_later_blocks(diagonals, block)
            own = (
                np.minimum(lanes - 1, diagonals - block * self.length)
                - np.maximum(0, diagonals - (block + 1) * self.length + 1)
                + 1
            )
            self._groups[block] = first // self.ring.group, (first + own - 1) // self.ring.group
        return self._groups[block]

    def _before(self, diagonal: Integers) -> Integers:
        """Words on all diagonals before one: `sum over lanes c of clip(d - c, 0, words of the lane)`."""
        last_lanes = self.lanes - (self.blocks - 1) * self.width
        whole, cut = self.blocks * self.length, (self.blocks - 1) * self.length
        return (
            _clipped_sum(diagonal, whole)
            - _clipped_sum(diagonal - last_lanes, whole)
            + _clipped_sum(diagonal - last_lanes, cut)
            - _clipped_sum(diagonal - self.width, cut)
        )

    def _of_later_blocks(self, diagonal: Integers, block: int) -> Integers:
        """Words on a diagonal that belong to later blocks: lower rows of what is written down, hence before ours."""
        last_lanes = self.lanes - (self.blocks - 1) * self.width
        low = np.maximum(0, diagonal - self.blocks * self.length + 1)
        high = np.minimum(self.width - 1, diagonal - (block + 1) * self.length)
        missing_high = np.minimum(high, diagonal - (self.blocks - 1) * self.length)
        missing = np.maximum(0, missing_high - np.maximum(low, last_lanes) + 1)
        return np.asarray(np.maximum(0, high - low + 1) - missing)


def _clipped_sum(end: Integers, most: int) -> Integers:
    """`sum over u = 1..end of min(u, most)`, 0 for a negative end."""
    z = np.maximum(end, 0)
    inside = np.minimum(z, most)
    return np.asarray(inside * (inside + 1) // 2 + (z - inside) * most)


@dataclass(frozen=True, kw_only=True)
class ReversedStream:
    """The operand that stays in the cells: per fold `width` lanes of up to `rows` words, the last row first, by rows.

    Attributes:
        length: Rows of all folds under each other; the last fold may have fewer than `rows`.
    """

    ring: Ring
    length: int
    width: int
    lanes: int
    rows: int

    def refills(self, column_fold: int, row_fold: int, start: int) -> Refills:
        """The misses of a fold: rows descend, so the window must reach back to the fold's first row, or go round."""
        ring = self.ring
        lanes = min(self.width, self.lanes - column_fold * self.width)
        base = column_fold * self.width * self.length
        top, row = row_fold * self.rows, min(self.length, (row_fold + 1) * self.rows) - 1
        cycles, moves = [], []
        while True:
            first = (base + row * lanes) // ring.group
            last = (base + row * lanes + lanes - 1) // ring.group
            made = 0
            for group in range(first, last + 1):
                more = ring.moves(start, group)
                start = ring.moved(start, more)
                made += more
            if made:
                cycles.append(top + self.rows - 1 - row)
                moves.append(made)
            # The next row with a word before the window; all rows down to it hit.
            begin = start - ring.groups if start > last else start
            row = min(row, -(-(begin * ring.group - base) // lanes)) - 1
            if row < top:
                break
        return Refills(
            cycles=np.array(cycles, dtype=np.int64), moves=np.array(moves, dtype=np.int64), start=start
        )  # fmt: skip
