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
_PLAYED = 64  # steps of a product whose panels are followed; the others read as the later half of these, which finds L2 filled


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

    Tiles are gone over in groups of eight rows, in steps of as many columns as `at_once` tiles of a group have; each tile needs a
    panel of either operand, and L2 keeps the panels that were used last.
    """
    panels: OrderedDict[tuple[int, int], float] = OrderedDict()
    held = loaded = at_half = 0.0
    steps, played = _steps(rows, columns, at_once), 0
    for group in range(0, rows, GROUP):
        deep = min(GROUP, rows - group)
        wide = _strip(deep, at_once)
        for first in range(0, columns, wide):
            if played == _PLAYED:
                return loaded + (loaded - at_half) * (steps - played) / (played - _PLAYED // 2)
            if played == _PLAYED // 2:
                at_half = loaded
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


def _strip(deep: int, at_once: int) -> int:
    """Columns of tiles that a step goes over in a group of so many rows."""
    return max(1, at_once // deep)


def _steps(rows: int, columns: int, at_once: int) -> int:
    """Strips of all groups, the last group with the rows that are left."""
    whole, rest = divmod(rows, GROUP)
    last = math.ceil(columns / _strip(rest, at_once)) if rest else 0
    return whole * math.ceil(columns / _strip(GROUP, at_once)) + last
