"""Plans: every table's sharding with the ranks that its shards are on, and the loads that these add up to."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.tables.kernels import EmbeddingKernels
from meshcast.tables.sharding import Sharding, ShardLoad, TrainerRanks, loads, shardings
from meshcast.tables.step import LOADS, Load, StepModel
from meshcast.tables.table import EmbeddingTable

Floats = npt.NDArray[np.float64]
_CARRIED_BY = {"table": Load.TABLE, "column": Load.COLUMN, "row": Load.ROW, "table-row": Load.NODE, "grid": Load.NODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTable:
    """A table's sharding, and where: ranks of its columns, nodes of its rows; nothing where all ranks have a part."""

    sharding: Sharding
    places: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShardingProblem:
    """Tables to be shared out over ranks of a device with so much memory for them.

    Attributes:
        wire: Bytes of an element of a pooled row that is sent.
        memory_bytes: What a rank has for tables, after the dense part.
        most_data_bytes: Tables up to this size may be on all ranks.
    """

    tables: tuple[EmbeddingTable, ...]
    ranks: TrainerRanks
    kernels: EmbeddingKernels
    model: StepModel
    memory_bytes: float
    wire: float = 4.0
    most_data_bytes: float = 64 * 2**20

    @cached_property
    def options(self) -> list[list[Sharding]]:
        """Every table's ways."""
        return [list(shardings(each, self.ranks, most_data_bytes=self.most_data_bytes)) for each in self.tables]

    @cached_property
    def _shards(self) -> dict[tuple[int, Sharding], tuple[Floats, Floats, float]]:
        return {}

    def shard(self, table: int, sharding: Sharding) -> tuple[Floats, Floats, float]:
        """What a shard of a table puts on its rank, the one with the hottest row first; and bytes that all ranks add up."""
        key = (table, sharding)
        if key not in self._shards:
            found = loads(self.tables[table], sharding, self.ranks, self.kernels, self.wire)
            hot, other = found[0], found[-1]
            self._shards[key] = (_vector(hot, sharding), _vector(other, sharding), hot.reduced_bytes)
        return self._shards[key]

    def spots(self, sharding: Sharding) -> int:
        """Places that one shard of a sharding may take: ranks, nodes, or one where all ranks have a part."""
        if sharding.way in ("table", "column"):
            return self.ranks.devices
        return self.ranks.nodes if sharding.way in ("table-row", "grid") else 1

    def put(self, load: Floats, table: int, placed: PlacedTable, sign: float = 1.0) -> float:
        """Adds a table's loads to the ranks that it is on; the bytes that all ranks add up are returned."""
        hot, other, reduced = self.shard(table, placed.sharding)
        if placed.sharding.way in ("table", "column"):
            for rank in placed.places:
                load[:, rank] += sign * hot
        else:
            node = self.ranks.node
            wide = placed.sharding.way in ("row", "data")
            for start, count in [(0, self.ranks.devices)] if wide else [(p * node, node) for p in placed.places]:
                load[:, start : start + count] += sign * other[:, None]
                load[:, start + self._hot(table, count)] += sign * (hot - other)
        return sign * reduced

    def _hot(self, table: int, ranks: int) -> int:
        """The rank with the hottest row: nothing tells which, so a hash of the table's name does."""
        return zlib.crc32(self.tables[table].name.encode()) % ranks

    def loaded(self, plan: Sequence[PlacedTable]) -> tuple[Floats, float]:
        """The loads of all ranks, and the bytes that all add up."""
        load = np.zeros((LOADS, self.ranks.devices))
        reduced = sum((self.put(load, table, placed) for table, placed in enumerate(plan)), 0.0)
        return load, reduced

    def judged(self, most: Floats, reduced: float) -> Floats:
        """Seconds of steps, one a column of largest loads; what does not fit takes for ever, and longer the less it fits."""
        seconds = self.model.seconds(most, reduced)
        over = most[Load.MEMORY] - self.memory_bytes
        return np.where(over > 0, 1e6 + over, seconds)

    def step(self, plan: Sequence[PlacedTable]) -> float:
        """Seconds of a plan's step; more than a million where it does not fit."""
        load, reduced = self.loaded(plan)
        return float(self.judged(load.max(axis=1, keepdims=True), reduced)[0])

    def best_spots(self, load: Floats, reduced: float, table: int, sharding: Sharding) -> PlacedTable:
        """A sharding's shards, each where the step is shortest with it, and of equal places where the load is least."""
        if self.spots(sharding) == 1:
            return PlacedTable(
                sharding=sharding, places=(0,) if sharding.way in ("table", "column", "table-row", "grid") else ()
            )
        seconds, tie = self._with_one(load, reduced, table, sharding)
        best = np.lexsort((tie, np.round(seconds, 12)))[: sharding.columns]
        return PlacedTable(sharding=sharding, places=tuple(sorted(best.tolist())))

    def _with_one(self, load: Floats, reduced: float, table: int, sharding: Sharding) -> tuple[Floats, Floats]:
        """Seconds of the step with one shard at each place, and how much of the largest loads that place then has."""
        hot, other, _ = self.shard(table, sharding)
        if sharding.way in ("table", "column"):
            with_it = load + hot[:, None]
        else:
            with_it = load.reshape(LOADS, self.ranks.nodes, self.ranks.node) + other[:, None, None]
            with_it[:, :, self._hot(table, self.ranks.node)] += (hot - other)[:, None]
            with_it = with_it.max(axis=2)
        most = load.max(axis=1)
        seconds = self.judged(np.maximum(most[:, None], with_it), reduced)
        return seconds, (with_it / np.maximum(most, 1e-30)[:, None]).sum(axis=0)


def _vector(load: ShardLoad, sharding: Sharding) -> Floats:
    found = np.zeros(LOADS)
    found[Load.FORWARD], found[Load.BACKWARD] = load.forward_s, load.backward_s
    found[Load.INPUT], found[Load.MEMORY] = load.input_bytes, load.memory_bytes
    if sharding.way in _CARRIED_BY:
        found[_CARRIED_BY[sharding.way]] = load.pooled_bytes
    return found
