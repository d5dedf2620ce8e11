"""Stalls of a layer: both read scratchpads and the output scratchpad over the folds of a layer.

A refill of half a scratchpad takes `n = ceil(spare / bandwidth) + 1` cycles and begins when the one before it ended. At a
miss in cycle c, let `d = c + 1 - end` be how long ago the last refill that was asked for ended. The refill asked for now
leaves `d' = max(0, n - d)`, every further one of the same cycle `n - d'`, and the array goes on at `end + d'`: SCALE-Sim 3.0.0
adds the wait for a refill twice, and we keep to it. The array waits for the slowest of the three scratchpads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meshcast.estimate.systolic.array import ArrayBuffer, SystolicArray
from meshcast.estimate.systolic.cycles import folds
from meshcast.estimate.systolic.layer import Integers, Layer, product_shapes
from meshcast.estimate.systolic.ring import Ring
from meshcast.estimate.systolic.streams import DiagonalStream, ReversedStream, Stream
from meshcast.estimate.systolic.windows import WindowStream
from meshcast.estimate.systolic.writes import OutputCount, Outputs, WriteBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """How one layer lies in the array: `cycles.Folds` of one layer, as plain numbers."""

    along_rows: int
    along_columns: int
    streamed: int
    row_folds: int
    column_folds: int
    fold_cycles: int

    @classmethod
    def of(cls, layer: Layer, array: SystolicArray) -> Lie:
        """A layer's folds."""
        m, n, k = product_shapes([layer])
        one = folds(m, n, k, array)
        return cls(**{name: int(getattr(one, name)[0]) for name in cls.__slots__})

    @property
    def cycles(self) -> int:
        """The cycles of all folds together, without stalls."""
        return self.row_folds * self.column_folds * self.fold_cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStalls:
    """The cycles of a layer with the stalls that its scratchpads cause.

    Attributes:
        total_cycles: The last cycle, stalls counted.
        with_prefetch: The cycles from the first word fetched to the last one written back.
    """

    total_cycles: int
    stall_cycles: int
    with_prefetch: int


def layer_stalls(layer: Layer, array: SystolicArray) -> LayerStalls:
    """Runs a layer's folds past its scratchpads."""
    lie = Lie.of(layer, array)
    reads = [ReadBuffer.of(operand, layer, array, lie) for operand in ("ifmap", "filter")]
    writes = WriteBuffer(array.ofmap, array.drain_bandwidth, OutputCount(outputs=_outputs(lie, array)))
    stalls = last = at = 0
    for cycle, moves in _merged(reads, lie, array):
        stalls = stalls if writes.never_drains else writes.run(at, cycle, stalls)
        last = 0 if writes.never_drains else writes.stalls_of(cycle, stalls)
        waits = [read.wait(cycle + stalls, count) for read, count in zip(reads, moves, strict=True) if count]
        at = cycle + 1
        if at == lie.cycles:  # the array's last cycle ends when its outputs are stored
            total = cycle + stalls + last
        stalls += max(last, *waits, 0)
    if at < lie.cycles:
        stalls = stalls if writes.never_drains else writes.run(at, lie.cycles, stalls)
        total = lie.cycles - 1 + stalls
    if writes.never_drains:
        writes.run(0, lie.cycles, stalls)
    writes.finish(total)
    return LayerStalls(
        total_cycles=total,
        stall_cycles=stalls,
        with_prefetch=writes.last_write + max(read.first_lines for read in reads),
    )


class ReadBuffer:
    """A read scratchpad while a layer runs."""

    def __init__(self, buffer: ArrayBuffer, stream: Stream, padded_words: int) -> None:
        self.stream = stream
        self._lines = -(-buffer.spare // buffer.bandwidth)
        self.first_lines = min(-(-buffer.active // buffer.bandwidth), -(-padded_words // buffer.bandwidth))
        self._filled = -1  # the cycle in which the last refill ended

    @classmethod
    def of(cls, operand: str, layer: Layer, array: SystolicArray, lie: Lie) -> ReadBuffer:
        """The scratchpad of the map or of the filters."""
        buffer = array.ifmap if operand == "ifmap" else array.filter
        stays = {"ws": "filter", "is": "ifmap"}.get(array.dataflow) == operand
        by_columns = stays or (array.dataflow == "os" and operand == "filter")
        width = array.columns if by_columns else array.rows
        lanes = lie.along_columns if by_columns else lie.along_rows
        length = lie.along_rows if stays else lie.streamed
        padded = -(-lanes // width) * width * length
        stream: Stream
        if operand == "ifmap" and layer.overlaps:
            stream = WindowStream(buffer=buffer, layer=layer, array=array)
        elif stays:
            ring = Ring.of(buffer, lanes * length)
            stream = ReversedStream(ring=ring, length=length, width=width, lanes=lanes, rows=array.rows)
        else:
            stream = DiagonalStream(
                ring=Ring.of(buffer, lanes * length), length=length, width=width, lanes=lanes,
                delay=0 if array.dataflow == "os" else array.rows, by_columns=by_columns,
            )  # fmt: skip
        return cls(buffer, stream, padded)

    def refills(self, lie: Lie) -> tuple[Integers, Integers]:
        """(cycles without stalls, moves in each) of all misses of a layer."""
        none = np.zeros(0, dtype=np.int64)
        if not self.stream.ring.step:
            return none, none
        start, cycles, moves = 0, [none], [none]
        for fold in range(lie.row_folds * lie.column_folds):
            found = self.stream.refills(*divmod(fold, lie.row_folds), start)
            start = found.start
            if len(found.cycles):
                cycles.append(found.cycles + fold * lie.fold_cycles)
                moves.append(found.moves)
        return np.concatenate(cycles), np.concatenate(moves)

    def wait(self, now: int, moves: int) -> int:
        """Cycles that the array waits for so many refills; negative where they were done before."""
        refill = self._lines + 1
        after_one = max(0, refill - (now + 1 - self._filled))
        self._filled += moves * refill
        return self._filled + (after_one if moves % 2 else refill - after_one) - now - 1


def _merged(reads: list[ReadBuffer], lie: Lie, array: SystolicArray) -> Iterator[tuple[int, tuple[int, int]]]:
    """Cycles with misses, in order, with the moves of both scratchpads; none where memory is always in time."""
    if array.estimated_bandwidth:
        return
    (first, first_moves), (second, second_moves) = (read.refills(lie) for read in reads)
    cycles = np.union1d(first, second)
    moves = np.zeros((2, len(cycles)), dtype=np.int64)
    moves[0, np.searchsorted(cycles, first)] = first_moves
    moves[1, np.searchsorted(cycles, second)] = second_moves
    for cycle, one, other in zip(cycles.tolist(), moves[0].tolist(), moves[1].tolist(), strict=True):
        yield cycle, (one, other)


def _outputs(lie: Lie, array: SystolicArray) -> Outputs:
    column, row = np.divmod(np.arange(lie.row_folds * lie.column_folds, dtype=np.int64), lie.row_folds)
    lanes = np.minimum(array.columns, lie.along_columns - column * array.columns)
    if array.dataflow == "os":  # from the last row up, after the empty ones of a fold that is not full
        lengths = np.minimum(array.rows, lie.along_rows - row * array.rows)
        delays = lie.streamed - 1 + array.rows - lengths
    else:
        lengths = np.full(len(row), lie.streamed, dtype=np.int64)
        delays = np.full(len(row), 2 * array.rows - 1, dtype=np.int64)
    return Outputs(fold_cycles=lie.fold_cycles, delays=delays, lengths=lengths, lanes=lanes)
