"""A convolution's map as its windows want it: an element lies in several windows, so it is written down several times.

A miss is a word none of whose copies is inside of the scratchpad's window (`ring`). Copies make the closed form of `streams`
wrong, so words are followed one by one, in NumPy: every word carries the number of the newest group that it came in with, and
is inside as long as that is not before the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from meshcast.estimate.systolic.array import Buffer, SystolicArray
from meshcast.estimate.systolic.layer import Integers, Layer
from meshcast.estimate.systolic.ring import Ring
from meshcast.estimate.systolic.streams import Refills, gathered

OUTSIDE = -1


def window_addresses(layer: Layer) -> Integers:
    """Addresses of the map's elements by window and place in it, M x K; `OUTSIDE` beyond the edge."""
    out_row, out_column = np.divmod(np.arange(layer.m), layer.output_width)
    place = np.arange(layer.k)
    filter_row, rest = np.divmod(place, layer.filter_width * layer.channels)
    filter_column, channel = np.divmod(rest, layer.channels)
    row = out_row[:, None] * layer.stride + filter_row
    column = out_column[:, None] * layer.stride + filter_column
    inside = (row < layer.ifmap_height) & (column < layer.ifmap_width)
    return np.where(inside, (row * layer.ifmap_width + column) * layer.channels + channel, OUTSIDE)


def skewed(matrix: Integers) -> Integers:
    """A matrix with column c moved down by c: its rows are the diagonals, from the lowest row up."""
    rows, columns = matrix.shape
    found = np.full((rows + columns - 1, columns), OUTSIDE, dtype=np.int64)
    for column in range(columns):
        found[column : column + rows, column] = matrix[:, column]
    return found


@dataclass(frozen=True, kw_only=True)
class WindowStream:
    """A map in its scratchpad, by the words of every fold."""

    buffer: Buffer
    layer: Layer
    array: SystolicArray
    _known: dict[tuple[int, int, int], Refills] = field(default_factory=dict, repr=False)

    @cached_property
    def ring(self) -> Ring:
        """The map in its scratchpad, copies counted."""
        return Ring.of(self.buffer, self.layer.window_elements)

    @cached_property
    def _operand(self) -> Integers:
        """What is cut into folds along its columns: M x K for `ws`, transposed otherwise."""
        addresses = window_addresses(self.layer)
        return addresses if self.array.dataflow == "ws" else addresses.T

    @property
    def _width(self) -> int:
        return self.array.columns if self.array.dataflow == "is" else self.array.rows

    @cached_property
    def _written(self) -> Integers:
        """Addresses in the order in which they are written down."""
        operand, width = self._operand, self._width
        blocks = -(-operand.shape[1] // width)
        padded = np.full((operand.shape[0], blocks * width), OUTSIDE, dtype=np.int64)
        padded[:, : operand.shape[1]] = operand
        under_each_other = np.concatenate(np.split(padded, blocks, axis=1))
        ordered = under_each_other if self.array.dataflow == "is" else skewed(under_each_other)
        flat = ordered.ravel()
        return flat[flat != OUTSIDE]

    def _wanted(self, column_fold: int, row_fold: int) -> tuple[Integers, Integers]:
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

    def _walked(self, column_fold: int, row_fold: int, start: int) -> Refills:
        ring, written = self.ring, self._written
        newest = np.full(self.layer.ifmap_height * self.layer.ifmap_width * self.layer.channels, -1, dtype=np.int64)

        def come_in(first: int, groups: int) -> None:
            """Groups enter the window; they are numbered on, also past the end of the ring."""
            at = np.arange(first, first + groups, dtype=np.int64)
            for number in at:
                place = int(number) % ring.groups * ring.group
                newest[written[place : place + ring.group]] = number

        addresses, cycles = self._wanted(column_fold, row_fold)
        begin = start
        come_in(begin, ring.active)
        found_cycles, found_moves = [], []
        at, chunk = 0, max(64, ring.step * ring.group)
        while at < len(addresses):
            misses = newest[addresses[at : at + chunk]] < begin
            miss = int(np.argmax(misses))
            if not misses[miss]:
                at += chunk
                continue
            at += miss
            moves = 0
            while newest[addresses[at]] < begin:
                come_in(begin + ring.active, ring.step)
                begin += ring.step
                moves += 1
            found_cycles.append(int(cycles[at]))
            found_moves.append(moves)
        return gathered(
            np.array(found_cycles, dtype=np.int64), np.array(found_moves, dtype=np.int64), begin % ring.groups
        )
