"""Look-ups and updates of table-batched embeddings on a GPU, by what they move and what they wait for.

A look-up has, side by side (joined by a p-norm):
- memory: rows that L2 does not hold, each with what HBM loses by opening its place; indices, offsets and results once;
- L2: rows that the SMs' own caches do not hold;
- issue: cycles of an SM a row loaded, an element and a bag; a block loads four rows of each bag at a time, there or not;
- waiting: a block waits for its indices and then for rows, turn by turn, and an SM holds so many blocks. A warp goes on when the
  last of the `n` rows that it loads at a time is there: where L2 does not hold a share `m` of the look-ups, it waits for HBM in
  `1 - (1 - m)^n` of its turns.
No kernel is shorter than its longest block: both are joined by a norm of their own, as blocks of several lengths share SMs.

An update (exact: each row written once) linearises indices, sorts them, finds runs of equal ones, sums every run and writes
its row:
- linearised by a warp a bag; sorted by radix, a pass a byte of the key, each of which reads and writes keys and places;
- runs are found by a few streams over all indices;
- short runs take SM cycles a run, a load of gradients and a gradient, beside the memory that rows, state and gradients move;
- long runs are listed by one warp each, and summed in pieces, whose turns are waited for as those of look-ups.

Fitted on one half of what `benchmarks/embeddings.py` measured on an H200 (`data/measured/h200-embeddings`, by
`benchmarks/embedding_fit.py`), on Triton kernels with FBGEMM's access pattern; other GPUs follow by their bandwidth,
caches, cores and clock. Those kernels take elements of two bytes one by one, which `by_element` describes; FBGEMM loads
them as it does those of four.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from meshcast.hardware import Device
from meshcast.jobs.embedding_tables.traffic import (
    LONG,
    PIECE,
    UNROLLED,
    WARPS,
    LookUps,
    Traffic,
    piece_rows,
    run_rows,
    traffic_of,
)

INDEX = 8  # bytes
STATE_READS = 2  # a row and its state are read, and written
SMALL_SORT = 4096  # keys that torch sorts in one block
UNKNOWN_LINK = 16e9  # bytes/s between host and device, PCIe 3, where a device's file has none


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpParameters:
    """What look-ups get out of a device; cycles are an SM's.

    Attributes:
        memory_share: Share of the data sheet's bandwidth that is reached.
        row_overhead: Bytes that HBM could have moved while it opens a row's place.
        cache_rate: L2 bytes a cycle and SM.
        row_cycles: Of a row that is loaded.
        element_cycles: Of an element of a row.
        narrow_cycles: Of an element of two bytes, taken by itself.
        bag_cycles: Of a bag.
        first_cycles: That a block waits before its first rows.
        wait_cycles: That it waits in each turn, for indices and for what rows take that L2 holds.
        miss_cycles: That it waits more where a row comes from HBM.
        alone: Share of its own issue that adds to a block's turn.
        resident: Blocks that an SM holds.
        norm: Of what happens side by side.
        block_norm: Of all blocks' time and the longest one's.
        start_s: Seconds of a kernel with nothing to do.
    """

    memory_share: float = 0.95
    row_overhead: float = 35.65
    cache_rate: float = 37.26
    row_cycles: float = 0.3669
    element_cycles: float = 0.04039
    narrow_cycles: float = 0.623
    bag_cycles: float = 6.309
    first_cycles: float = 2329.0
    wait_cycles: float = 1050.0
    miss_cycles: float = 843.5
    alone: float = 0.689
    resident: float = 14.01
    norm: float = 3.061
    block_norm: float = 1.488
    start_s: float = 2.817e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateParameters:
    """What updates get out of a device; cycles are an SM's.

    Attributes:
        linear_start_s: Seconds of linearising nothing.
        linear_bag_cycles: Of a bag, which a warp linearises.
        linear_index_cycles: Of an index.
        linear_turn_cycles: That a warp waits for each 32 indices of a bag.
        sort_start_s: Seconds of sorting nothing.
        sort_more_s: Seconds that a sort of more than one block takes besides.
        sort_share: Share of the bandwidth at which its passes read and write.
        runs_start_s: Seconds of the launches that find runs.
        runs_bytes: Bytes moved for an index while runs are found.
        start_s: Seconds of the launches that sum and write.
        memory_share: Share of the bandwidth that rows and gradients reach.
        row_overhead: Bytes lost by opening the places of a row and of its state.
        gradient_overhead: Bytes lost by opening that of a gradient that L2 does not hold.
        run_cycles: Of a run.
        turn_cycles: Of a load of gradients of a run.
        gradient_cycles: Of a gradient.
        list_cycles: Of a piece of the hottest run, listed one after another.
        chain_cycles: That a warp waits for each load of the longest short run.
        piece_turn_cycles: Of a block's load of gradients of a long run.
        piece_wait_cycles: That a block waits for it.
        narrow: How much more such a load takes at 128 columns of two bytes taken one by one,
        narrow_power: and how that grows with the columns.
        long_row_cycles: Of writing a long run's row.
        norm: Of what happens side by side.
    """

    linear_start_s: float = 4.4e-6
    linear_bag_cycles: float = 153.6
    linear_index_cycles: float = 0.44
    linear_turn_cycles: float = 871.0
    sort_start_s: float = 32.25e-6
    sort_more_s: float = 23.5e-6
    sort_share: float = 0.4315
    runs_start_s: float = 20.1e-6
    runs_bytes: float = 85.2
    start_s: float = 7.0e-6
    memory_share: float = 0.728
    row_overhead: float = 187.0
    gradient_overhead: float = 306.0
    run_cycles: float = 55.3
    turn_cycles: float = 65.9
    gradient_cycles: float = 1.78
    list_cycles: float = 53.6
    chain_cycles: float = 1740.0
    piece_turn_cycles: float = 487.0
    piece_wait_cycles: float = 2671.0
    narrow: float = 1.413
    narrow_power: float = 1.6
    long_row_cycles: float = 764.0
    norm: float = 2.69


@dataclass(frozen=True, kw_only=True)
class EmbeddingKernels:
    """Seconds of look-ups and updates on one device; tables of a rank share a kernel, to which each adds its own."""

    device: Device
    look_up: LookUpParameters = LookUpParameters()
    updating: UpdateParameters = UpdateParameters()
    by_element: bool = False
    _known: dict[LookUps, Traffic] = field(default_factory=dict, init=False, repr=False, compare=False)

    def traffic(self, work: LookUps) -> Traffic:
        """The numbers that times follow from, worked out once."""
        if work not in self._known:
            self._known[work] = traffic_of(work, self.device)
        return self._known[work]

    @cached_property
    def cycles(self) -> float:
        """SM cycles per second of the whole device."""
        return self.device.cores * self.device.clock_hz

    def forward(self, t: Traffic) -> Any:
        """Seconds that a table adds to the look-ups of its rank."""
        p, bandwidth = self.look_up, self.device.memory_bandwidth
        streamed = t.look_ups * INDEX + t.bags * (t.result_bytes + INDEX)
        memory = (t.missed * (t.row_bytes + p.row_overhead) + streamed) / (bandwidth * p.memory_share)
        cache = t.missed_near * t.row_bytes / (p.cache_rate * self.cycles)
        issue = (t.bags * 4 * t.turns * self._row_cycles(t) + t.bags * p.bag_cycles) / self.cycles
        block = p.first_cycles + self._turn(t) * t.turns
        waiting = t.bags / t.grouped * block / (self.cycles * p.resident)
        return joined(p.norm, memory, cache, issue, waiting)

    def forward_block(self, t: Traffic) -> Any:
        """Seconds of the longest block of a table."""
        return (self.look_up.first_cycles + self._turn(t) * t.most_turns) / self.device.clock_hz

    def forward_call(self, total: Any, block: Any) -> Any:
        """Seconds of a look-up kernel whose tables add up to `total`, the longest block taking `block`."""
        p = self.look_up
        return p.start_s + (total**p.block_norm + block**p.block_norm) ** (1 / p.block_norm)

    def _row_cycles(self, t: Traffic) -> Any:
        p = self.look_up
        narrow = p.narrow_cycles if self.by_element else p.element_cycles
        return p.row_cycles + (p.element_cycles + (narrow - p.element_cycles) * t.narrow) * t.dim

    def _turn(self, t: Traffic) -> Any:
        p = self.look_up
        loaded = UNROLLED * t.grouped  # rows, by all of its warps
        late = 1 - (1 - np.minimum(t.missed / t.look_ups, 1.0)) ** (loaded / WARPS)
        return p.wait_cycles + p.miss_cycles * late + loaded * self._row_cycles(t) * p.alone

    def backward(self, t: Traffic, *, key_bytes: Any = 4) -> Any:
        """Seconds that a table adds to the update of its rank."""
        u, bandwidth = self.updating, self.device.memory_bandwidth
        warps = (t.bags * u.linear_bag_cycles + t.look_ups * u.linear_index_cycles) / self.cycles
        linear = np.maximum(warps, t.look_ups * 2 * INDEX / bandwidth)
        sort = 2 * t.look_ups * (key_bytes + INDEX) * key_bytes / (bandwidth * u.sort_share)
        runs = t.look_ups * u.runs_bytes / bandwidth
        return linear + sort + runs + self._summed(t)

    def _summed(self, t: Traffic) -> Any:
        u = self.updating
        memory = self.device.memory_bandwidth * u.memory_share
        long, in_long = np.minimum(t.long_runs, t.different), np.minimum(t.in_long_runs, t.look_ups)
        short, in_short = t.different - long, t.look_ups - in_long
        gradient = t.gradients_missed * (t.row_bytes + u.gradient_overhead) + 12  # place and bag
        row = STATE_READS * (t.row_bytes + t.state_bytes + 2 * u.row_overhead)
        issue = (short * u.run_cycles + t.short_turns * u.turn_cycles + in_short * u.gradient_cycles) / self.cycles
        shorter = joined(u.norm, (short * row + in_short * gradient) / memory, issue)
        turns = t.long_turns * u.piece_turn_cycles * self._wide(t) / self.cycles
        longer = joined(u.norm, in_long * gradient / memory, turns)
        written = long * np.maximum(u.long_row_cycles / self.cycles, row / memory)
        return shorter + longer + written

    def _wide(self, t: Traffic) -> Any:
        if not self.by_element:
            return 1.0
        return 1 + t.narrow * self.updating.narrow * (t.dim / 128) ** self.updating.narrow_power

    def backward_chain(self, t: Traffic) -> Any:
        """Seconds of a table's longest warps and blocks, one after another."""
        u = self.updating
        long = np.where(t.hottest > LONG, 1.0, 0.0)
        listed = long * t.hottest / PIECE * u.list_cycles
        warp = u.chain_cycles * np.ceil(np.minimum(LONG, t.hottest) / run_rows(t.dim))
        piece = long * np.ceil(np.minimum(PIECE, t.hottest) / piece_rows(t.dim)) * u.piece_wait_cycles
        linear = u.linear_turn_cycles * np.ceil(t.most_turns / 8)  # a turn of a look-up is 4 indices, of a warp 32
        return (listed + warp + piece + linear) / self.device.clock_hz

    def backward_call(self, total: Any, chain: Any, look_ups: Any = SMALL_SORT + 1) -> Any:
        """Seconds of an update whose tables add up to `total`, with the longest chain of any."""
        u = self.updating
        starts = u.linear_start_s + u.sort_start_s + u.runs_start_s + u.start_s
        return starts + np.where(look_ups > SMALL_SORT, u.sort_more_s, 0.0) + total + chain

    def dense_backward(self, t: Traffic, gradient_bytes: float) -> Any:
        """Seconds of a table that all ranks have: a dense gradient is filled, added to, and applied to every row.

        Six streams: zeros written, sums added, then gradient, state and rows read and rows written.
        """
        return 6 * gradient_bytes / (self.device.memory_bandwidth * self.look_up.memory_share) + self.backward(t)

    def from_host(self, work: LookUps) -> float:
        """Seconds in which rows that lie in host memory alone cross the link, each way once where they are updated.

        A cache of the share `cached` of the rows is empty of others as L2 is (`Picked.misses`), but full from the steps
        before: what a batch picks is found with the chance that it was picked within the cache's reach.
        """
        return rows_from_host(work) * work.row_bytes / (self.device.host_bandwidth or UNKNOWN_LINK)


def rows_from_host(work: LookUps) -> float:
    """Different rows of a batch that the device's cache does not hold: by the share of hits that is said, or by the indices."""
    if work.cached is None or work.cached >= 1:
        return 0.0
    if work.hits is not None:
        return (1 - work.hits) * float(work.picked.different(work.look_ups))
    rows = float(work.picked.rows.sum())
    return work.picked.missed_in_steady_state(work.look_ups, max(1.0, work.cached * rows))


def joined(norm: float, *seconds: Any) -> Any:
    """The p-norm of times that pass side by side."""
    longest = np.maximum.reduce([*seconds, 1e-15 * np.ones_like(seconds[0])])
    return longest * sum((each / longest) ** norm for each in seconds) ** (1 / norm)
