"""The output scratchpad: filled by the array, drained to memory half a scratchpad at a time.

A drain begins when more than half is full and none is under way, and takes a cycle for every line of `bandwidth` words; the
array stalls when everything is full. SCALE-Sim closes a line when a drain begins, whether it is full or not, and counts it as
full where others follow it in the same drain: so a drain may free more words than it wrote.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from meshcast.estimate.systolic.array import ArrayBuffer
from meshcast.estimate.systolic.layer import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """When a layer's folds give words out: after `delays` cycles, `lengths` rows, skewed over `lanes`; one entry a fold."""

    fold_cycles: int
    delays: Integers
    lengths: Integers
    lanes: Integers

    def through(self) -> Integers:
        """Words that all folds up to and including each give out."""
        return np.cumsum(self.lengths * self.lanes)


@dataclass(kw_only=True)
class OutputCount:
    """Words given out by cycle, and the cycle of a word."""

    outputs: Outputs
    _through: Integers = field(init=False, repr=False)
    _shapes: dict[tuple[int, int, int], Integers] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._through = self.outputs.through()

    @property
    def total(self) -> int:
        """All words."""
        return int(self._through[-1])

    def upto(self, cycle: int) -> int:
        """Words given out in cycles 0 to `cycle`."""
        fold, within = divmod(cycle, self.outputs.fold_cycles)
        if cycle < 0 or fold >= len(self._through):
            return 0 if cycle < 0 else self.total
        before = int(self._through[fold - 1]) if fold else 0
        return before + int(self._shape(fold)[within])

    def cycle_of(self, word: int) -> int:
        """The cycle in which the word of this number, from 1, is given out; beyond the end where there are fewer."""
        fold = int(np.searchsorted(self._through, word))
        if fold == len(self._through):
            return fold * self.outputs.fold_cycles
        before = int(self._through[fold - 1]) if fold else 0
        return fold * self.outputs.fold_cycles + int(np.searchsorted(self._shape(fold), word - before))

    def _shape(self, fold: int) -> Integers:
        """Words of a fold up to each of its cycles."""
        made = self.outputs
        key = (int(made.delays[fold]), int(made.lengths[fold]), int(made.lanes[fold]))
        if key not in self._shapes:
            delay, length, lanes = key
            since = np.arange(made.fold_cycles, dtype=np.int64) - delay
            fresh = np.minimum(since + 1, lanes) - np.maximum(0, since - length + 1)
            self._shapes[key] = np.cumsum(np.maximum(0, fresh))
        return self._shapes[key]


class WriteBuffer:
    """The output scratchpad while a layer runs; cycles passed in count stalls so far."""

    def __init__(self, buffer: ArrayBuffer, bandwidth: int, count: OutputCount) -> None:
        self._buffer, self._bandwidth, self._count = buffer, bandwidth, count
        self._free = buffer.words
        self._stored = 0
        self._unwritten = 0  # words since the last line that was closed early
        self._lines: deque[list[int]] = deque()  # [lines, words of the last one]
        self.drained_until = 0
        self.last_write = 0

    @property
    def never_drains(self) -> bool:
        """Whether half of it holds all outputs."""
        return self._count.total <= self._buffer.spare

    def run(self, begin: int, end: int, stalls: int) -> int:
        """Takes the words of cycles `begin` to `end - 1` of the array; stalls after them."""
        cycle = begin
        while cycle < end:
            if cycle + stalls < self.drained_until:
                stop = min(end, self.drained_until - stalls)
                event = self._count.cycle_of(self._stored + max(1, self._free))
            else:
                stop = end
                event = self._count.cycle_of(self._stored + max(1, self._free - self._buffer.active + 1))
            if event >= stop:
                self._take(self._count.upto(stop - 1) - self._stored)
                cycle = stop
                continue
            self._take(self._count.upto(event - 1) - self._stored)
            stalls += self.stalls_of(event, stalls)
            cycle = event + 1
        return stalls

    def stalls_of(self, cycle: int, stalls: int) -> int:
        """Takes the words of one cycle of the array; how long it has to wait for room."""
        now = cycle + stalls
        left = self._count.upto(cycle) - self._stored
        while left > 0:
            draining = now < self.drained_until
            room = max(1, self._free if draining else self._free - self._buffer.active + 1)
            if room > left:
                self._take(left)
                break
            self._take(room)
            left -= room
            if draining:
                now = self.drained_until
            else:
                self.drained_until = self._drain(now)
        return now - cycle - stalls

    def finish(self, now: int) -> None:
        """Drains what is left, one half after the other."""
        self._close_line()
        while self._lines:
            self.drained_until = self._drain(now)
            now = self.drained_until + 1

    def _take(self, words: int) -> None:
        self._free -= words
        self._stored += words
        self._unwritten += words

    def _close_line(self) -> None:
        if self._unwritten:
            lines = -(-self._unwritten // self._bandwidth)
            self._lines.append([lines, self._unwritten - (lines - 1) * self._bandwidth])
            self._unwritten = 0

    def _drain(self, now: int) -> int:
        self._close_line()
        wanted = -(-self._buffer.spare // self._bandwidth)
        taken, last = 0, 0
        while taken < wanted and self._lines:
            segment = self._lines[0]
            part = min(segment[0], wanted - taken)
            taken += part
            segment[0] -= part
            last = segment[1] if segment[0] == 0 else self._bandwidth
            if segment[0] == 0:
                self._lines.popleft()
        self._free += (taken - 1) * self._bandwidth + last
        self.last_write = max(self.last_write, now + taken - 1)
        return now + taken - 1
