"""What L2 still holds: by how many bytes went through it since, and by which panels of a product were used last.

Addresses are hashed over the sets of a cache, each of which keeps the `w` lines that were used last. A kernel that goes over
`D` bytes from one use of a line to the next finds it where fewer than `w` others fell into its set; how many did is a Poisson
number:

    h = P(Poisson(w D / C) < w)

It falls from 0.9 at `D = 0.7 C` to 0.2 at 1.2 C and is a half at C, where one large set would lose everything at once.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from dataclasses import dataclass

from meshcast.base import made_quickly
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.lower import Recency

WAYS = 16  # of a set (V100: Jia et al. 2018, Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking)
GROUP = 8  # rows of tiles that are gone over together, column by column (Triton's and CUTLASS's swizzles)
_PLAYED = 64  # waves of a product whose panels are followed


@functools.lru_cache(maxsize=16384)
def swept(over: float) -> float:
    """The share of a sweep over `over` times the cache that hits: sets into which less than their ways fell besides."""
    mean = WAYS * over
    if mean > 8 * WAYS:
        return 0.0
    term = total = math.exp(-mean)
    for count in range(1, WAYS):
        term *= mean / count
        total += term
    return total


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """Shares of a kernel's first reads and of its writes that go to memory."""

    read: float
    written: float


def misses(read: float, written: float, chip: Chip, recency: Recency | None) -> Misses:
    """What a kernel's bytes find of themselves from their last use; nothing ran since where nobody says (`recency`)."""
    own, room = read + written, chip.cache_reach
    if recency is None:
        missed = 1 - swept(own / room)
        return Misses(read=missed, written=missed)
    known = sum(size for _, size in recency.reads)
    hit = sum(size * swept((own + age) / room) for age, size in recency.reads)
    return Misses(
        read=1 - (hit / known if known else swept(own / room)), written=1 - swept((own + recency.written) / room)
    )


@functools.lru_cache(maxsize=4096)
def panel_reads(rows: int, columns: int, row_bytes: float, column_bytes: float, at_once: int, room: float) -> float:
    """Bytes of panels that tiles of a product ask memory for, first reads included.

    Tiles are gone over in groups of eight rows, `at_once` at a time; each needs a panel of either operand, and L2 keeps the
    panels that were used last.
    """
    panels: OrderedDict[tuple[int, int], float] = OrderedDict()
    held = loaded = 0.0
    waves, played = math.ceil(rows * columns / at_once), 0
    for group in range(0, rows, GROUP):
        deep = min(GROUP, rows - group)
        wide = max(1, at_once // deep)
        for first in range(0, columns, wide):
            if played == _PLAYED:
                return loaded * waves / played
            played += 1
            wanted = [(0, row) for row in range(group, group + deep)]
            wanted += [(1, column) for column in range(first, min(columns, first + wide))]
            for panel in wanted:
                if panel in panels:
                    panels.move_to_end(panel)
                    continue
                size = column_bytes if panel[0] else row_bytes
                panels[panel] = size
                held, loaded = held + size, loaded + size
            while held > room and len(panels) > len(wanted):
                held -= panels.popitem(last=False)[1]
    return loaded
