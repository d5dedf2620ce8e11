"""Torch's own `embedding_bag` on a GPU, with sparse gradients and plain SGD: a table at a time, by what its kernels wait for.

- A look-up (`EmbeddingBag_updateOutputKernel_sum_mean`, ATen/native/cuda/EmbeddingBag.cu) has a warp for 32 columns of a bag,
  1,024 blocks of eight warps at a time: SM cycles a warp and a row of it, the chain of loads of one warp, which waits for an
  index and then for its row, and what HBM moves, one after another.
- Gradients of indices are picked from their bags' by a block each (`index_select`): cycles a block, beside what they move.
- SGD adds them, scaled, to their rows by atomics (`index_add_`): cycles an element, or those of the hottest row one after
  another where these take longer.

Fitted on one half of the `bag` rows of `data/measured/h200-embeddings` (`benchmarks/embedding_fit.py`), the atomics on a
profile of that half's whole steps (`benchmarks/recommender_profile.py`: 33 us for 32,768 rows of 128 columns, 84 us where half
of them are one row); other GPUs follow by their cores, clock and bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels
from meshcast.jobs.embedding_tables.traffic import Traffic

WARP = 32
WARPS = 1024 * 8  # that a look-up launches


@dataclass(frozen=True, slots=True, kw_only=True)
class BagParameters:
    """What `embedding_bag` gets out of a device; cycles are an SM's.

    Attributes:
        start_s: Seconds of a look-up of nothing.
        warp_cycles: Of a warp that sums 32 columns of a bag.
        row_cycles: Of a row of it.
        wait_cycles: That it waits for each row.
        pick_start_s: Seconds of picking no gradients.
        pick_cycles: Of a gradient that is picked by a block.
        add_cycles: Of an element that is added to its row.
        again_cycles: That a row waits each time that it is added to, one after another,
        again_element_cycles: and for each of its elements.
    """

    start_s: float = 3.17e-6
    warp_cycles: float = 79.0
    row_cycles: float = 6.87
    wait_cycles: float = 384.0
    pick_start_s: float = 2.49e-6
    pick_cycles: float = 158.0
    add_cycles: float = 1.75
    again_cycles: float = 8.0
    again_element_cycles: float = 0.017


@dataclass(frozen=True, slots=True, kw_only=True)
class BagKernels:
    """Seconds of a table's kernels on one device."""

    kernels: EmbeddingKernels
    parameters: BagParameters = BagParameters()

    def forward(self, t: Traffic) -> Any:
        """Seconds of a table's look-up."""
        p, cycles = self.parameters, self.kernels.cycles
        warps = t.bags * np.ceil(t.dim / WARP)
        pooled = t.look_ups / t.bags
        issue = warps * (p.warp_cycles + pooled * p.row_cycles) / cycles
        chain = np.ceil(warps / WARPS) * pooled * p.wait_cycles / self.kernels.device.clock_hz
        moved = t.missed * t.row_bytes / (self.kernels.device.memory_bandwidth * self.kernels.look_up.memory_share)
        return p.start_s + issue + chain + moved

    def picked(self, t: Traffic) -> Any:
        """Seconds of picking every index's gradient."""
        p = self.parameters
        return p.pick_start_s + np.maximum(t.look_ups * p.pick_cycles / self.kernels.cycles, self._streamed(t))

    def added(self, t: Traffic) -> Any:
        """Seconds of adding the gradients to their rows."""
        p = self.parameters
        again = t.hottest * (p.again_cycles + p.again_element_cycles * t.dim) / self.kernels.device.clock_hz
        return p.pick_start_s + np.maximum(t.look_ups * t.dim * p.add_cycles / self.kernels.cycles, again)

    def _streamed(self, t: Traffic) -> Any:
        """Gradients read and written once."""
        device = self.kernels.device
        return 2 * t.look_ups * t.result_bytes / (device.memory_bandwidth * self.kernels.look_up.memory_share)
