"""A convolution's map as its windows want it: an element lies in several windows, so it is written down several times.

A miss is a word none of whose copies is inside of the scratchpad's window (`ring`). Copies make the closed form of `streams`
wrong, so words are followed one by one, in NumPy: every word carries the number of the newest group that it came in with, and
is inside as long as that is not before the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.estimate.systolic.array import ArrayBuffer, SystolicArray
from meshcast.estimate.systolic.layer import Integers, Layer
from meshcast.estimate.systolic.ring import Ring
from meshcast.estimate.systolic.streams import Refills, gathered

OUTSIDE = -1
FEW_MOVES = 4  # that are cheaper made one by one than looked up
Addresses = npt.NDArray[np.int32]


def window_addresses(layer: Layer) -> Addresses:
    """Addresses of the map's elements by window and place in it, M x K; `OUTSIDE` beyond the edge."""
    out_row, out_column = np.divmod(np.arange(layer.m, dtype=np.int32), layer.output_width)
    filter_row, rest = np.divmod(np.arange(layer.k, dtype=np.int32), layer.filter_width * layer.channels)
    filter_column, channel = np.divmod(rest, layer.channels)
    corner = (out_row * layer.ifmap_width + out_column) * (layer.stride * layer.channels)
    place = (filter_row * layer.ifmap_width + filter_column) * layer.channels + channel
    found: Addresses = corner[:, None] + place
    if layer.window_elements < layer.m * layer.k:
        inside = out_row[:, None] * layer.stride + filter_row < layer.ifmap_height
        inside &= out_column[:, None] * layer.stride + filter_column < layer.ifmap_width
        found[~inside] = OUTSIDE
    return found


def skewed(matrix: Addresses) -> Addresses:
    """A matrix with column c moved down by c: its rows are the diagonals, from the lowest row up."""
    rows, columns = matrix.shape
    padded = np.full((columns, rows + columns), OUTSIDE, dtype=np.int32)
    padded[:, :rows] = matrix.T
    # Cut one shorter, every row begins one later than the one above.
    return padded.ravel()[: columns * (rows + columns - 1)].reshape(columns, rows + columns - 1).T


@dataclass(frozen=True, kw_only=True)
class WindowStream:
    """A map in its scratchpad, by the words of every fold."""

    buffer: ArrayBuffer
    layer: Layer
    array: SystolicArray
    _known: dict[tuple[int, int, int], Refills] = field(default_factory=dict, repr=False)

    @cached_property
    def ring(self) -> Ring:
        """The map in its scratchpad, copies counted."""
        return Ring.of(self.buffer, self.layer.window_elements)

    @cached_property
    def _operand(self) -> Addresses:
        """What is cut into folds along its columns: M x K for `ws`, transposed otherwise."""
        addresses = window_addresses(self.layer)
        return addresses if self.array.dataflow == "ws" else addresses.T

    @property
    def _width(self) -> int:
        return self.array.columns if self.array.dataflow == "is" else self.array.rows

    @cached_property
    def _written(self) -> Addresses:
        """Addresses in the order in which they are written down."""
        operand, width = self._operand, self._width
        blocks = -(-operand.shape[1] // width)
        padded = np.full((operand.shape[0], blocks * width), OUTSIDE, dtype=np.int32)
        padded[:, : operand.shape[1]] = operand
        under_each_other = np.concatenate(np.split(padded, blocks, axis=1))
        ordered = under_each_other if self.array.dataflow == "is" else skewed(under_each_other)
        flat = ordered.ravel()
        return np.asarray(flat[flat != OUTSIDE])

    def _wanted(self, column_fold: int, row_fold: int) -> tuple[Addresses, Integers]:
        """(addresses in the order in which a fold wants them, the cycle of each)."""
        rows, columns = self.array.rows, self.array.columns
        if self.array.dataflow == "is":
            tile = self._operand[row_fold * rows : (row_fold + 1) * rows, column_fold * columns :][:, :columns]
            lines, delay = tile[::-1], rows - tile.shape[0]
        else:
            lines = skewed(self._operand[:, row_fold * rows : (row_fold + 1) * rows])
            delay = rows if self.array.dataflow == "ws" else 0
        cycles = np.repeat(np.arange(len(lines)) + delay, lines.shape[1])
        flat = lines.ravel()
        inside = flat != OUTSIDE
        return flat[inside], cycles[inside]

    def refills(self, column_fold: int, row_fold: int, start: int) -> Refills:
        """The misses of a fold, given where the window begins."""
        key = (column_fold if self.array.dataflow == "is" else 0, row_fold, start)
        if key not in self._known:
            self._known[key] = self._walked(column_fold, row_fold, start)
        return self._known[key]

    @cached_property
    def _inside(self) -> _Inside:
        return _Inside(ring=self.ring, written=self._written, words=self.layer.map_elements)

    def _walked(self, column_fold: int, row_fold: int, start: int) -> Refills:
        inside = self._inside
        inside.begin_at(start)
        addresses, cycles = self._wanted(column_fold, row_fold)
        found_cycles, found_moves = [], []
        at, chunk = 0, max(4096, 2 * self.ring.step * self.ring.group)
        while at < len(addresses):
            misses = inside.missing(addresses[at : at + chunk])
            miss = int(np.argmax(misses))
            if not misses[miss]:
                at += chunk
                continue
            at += miss
            found_cycles.append(int(cycles[at]))
            found_moves.append(inside.move_to(int(addresses[at])))
        return gathered(np.array(found_cycles, dtype=np.int64), np.array(found_moves, dtype=np.int64), inside.start)


class _Inside:
    """Which words are inside of the window: those whose newest group is not before it. Groups are numbered on and on."""

    def __init__(self, *, ring: Ring, written: Addresses, words: int) -> None:
        self._ring, self._written = ring, written
        self._group = np.arange(len(written), dtype=np.int64) // ring.group
        self._newest = np.full(words, -1, dtype=np.int64)
        self._begin = 0
        self._come_in(0, ring.active)

    @property
    def start(self) -> int:
        """The group that the window begins with."""
        return self._begin % self._ring.groups

    def begin_at(self, start: int) -> None:
        """Puts the window somewhere else; nothing to do where it is there."""
        if start != self.start:
            self._begin += 2 * self._ring.groups + start - self.start  # all numbers so far lie before it
            self._come_in(self._begin, self._ring.active)

    def missing(self, addresses: Addresses) -> npt.NDArray[np.bool_]:
        """Which of these words are not inside."""
        return np.asarray(self._newest[addresses] < self._begin)

    def move_to(self, address: int) -> int:
        """Moves the window on until a word is inside; how often."""
        ring = self._ring
        for moves in range(FEW_MOVES):
            if self._newest[address] >= self._begin:
                return moves
            self._come_in(self._begin + ring.active, ring.step)
            self._begin += ring.step
        # A long way round: straight to where a copy is, past what would come in and leave again.
        more = min(ring.moves(self.start, int(group)) for group in self._groups_of(address))
        inside_until, self._begin = self._begin + ring.active, self._begin + more * ring.step
        first = max(inside_until, self._begin)
        self._come_in(first, self._begin + ring.active - first)
        return FEW_MOVES + more

    def _groups_of(self, address: int) -> Integers:
        """The groups that hold copies of a word."""
        order, starts = self._copies
        return self._group[order[starts[address] : starts[address + 1]]]

    @cached_property
    def _copies(self) -> tuple[Integers, Integers]:
        """Places in the written-down order by address, and where each address begins."""
        order = np.argsort(self._written, kind="stable")
        counts = np.bincount(self._written, minlength=len(self._newest))
        return order, np.concatenate(([0], np.cumsum(counts)))

    def _come_in(self, first: int, groups: int) -> None:
        ring = self._ring
        while groups > 0:
            lap, place = divmod(first, ring.groups)
            now = min(groups, ring.groups - place)
            words = slice(place * ring.group, (place + now) * ring.group)
            self._newest[self._written[words]] = self._group[words] + lap * ring.groups
            first, groups = first + now, groups - now
