"""Plans: every table's sharding with the ranks that its shards are on, and the loads that these add up to."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.base import UsageError
from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels
from meshcast.jobs.embedding_tables.kinds import RankKind, RankKinds
from meshcast.jobs.embedding_tables.sharding import Sharding, ShardLoad, TrainerRanks, loads, shardings
from meshcast.jobs.embedding_tables.step import LOADS, Load, StepModel, StepTime
from meshcast.jobs.embedding_tables.table import EmbeddingTable

Floats = npt.NDArray[np.float64]
MANY_TABLES = 200  # beyond which single tables matter less, and fewer ways are tried
# Of a rank's mean load, what is lost at most where lighter tables of many stay whole or go to all ranks: placed where least is,
# no rank exceeds the mean by more than the last table that it got (Graham 1969, "Bounds on multiprocessing timing anomalies").
# Steps of two sets of 1,000 tables on 128 devices differ by 4 % at most with any share from 0.03 to 0.5; 0.03 takes 1.6 times as
# long to search.
LIGHT = 0.1
_CARRIED_BY = {"table": Load.TABLE, "column": Load.COLUMN, "row": Load.ROW, "table-row": Load.NODE, "grid": Load.NODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTable:
    """A table's sharding, and where: ranks of its columns, nodes of its rows; nothing where all ranks have a part."""

    sharding: Sharding
    places: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShardingProblem:
    """Tables to be shared out over ranks with so much memory for them.

    Attributes:
        wire: Bytes of an element of a pooled row that is sent.
        memory_bytes: What a rank has for tables, after the dense part.
        most_data_bytes: Tables up to this size may be on all ranks.
        unlike: Kinds of ranks where they are not all alike; None where they are.
    """

    tables: tuple[EmbeddingTable, ...]
    ranks: TrainerRanks
    kernels: EmbeddingKernels
    model: StepModel
    memory_bytes: float
    wire: float = 4.0
    most_data_bytes: float = 64 * 2**20
    unlike: RankKinds | None = None

    @cached_property
    def kinds(self) -> RankKinds:
        """Of all ranks."""
        if self.unlike is not None:
            return self.unlike
        one = RankKind(kernels=self.kernels, dense=self.model.dense, memory_bytes=self.memory_bytes)
        return RankKinds(kinds=(one,), of_rank=np.zeros(self.ranks.devices, dtype=np.int64))

    @cached_property
    def _several(self) -> bool:
        return len(self.kinds.kinds) > 1

    @cached_property
    def _kind_of(self) -> list[int]:
        return [int(kind) for kind in self.kinds.of_rank]

    @cached_property
    def options(self) -> list[list[Sharding]]:
        """Every table's ways.

        Raises:
            UsageError: A table can take none of those that its file allows.
        """
        found = [list(shardings(each, self.ranks, most_data_bytes=self.most_data_bytes)) for each in self.tables]
        for table, ways in zip(self.tables, found, strict=True):
            if not ways:
                on = f"{self.ranks.devices} devices in nodes of {self.ranks.node}"
                raise UsageError(
                    f"{table.rows:,} rows of {table.dim} columns on {on} cannot be shared out {', '.join(table.ways)}-wise",
                    where=f"ways of {table.name}",
                    fix="rows need a device each, columns go in parts of 32 or more, table-row and grid need whole nodes, "
                    "two or more: allow `table` as well, or take other devices",
                )
        return found

    @cached_property
    def weights(self) -> list[float]:
        """Every table's seconds of look-ups and updates where it is whole, and a little for its bytes."""
        found = []
        for table, ways in enumerate(self.options):
            hot, _, _ = self.shard(table, ways[0])
            found.append(float(hot[Load.FORWARD, 0] + hot[Load.BACKWARD, 0]) + 1e-9 * float(hot[Load.MEMORY, 0]))
        return found

    @cached_property
    def tried(self) -> list[list[Sharding]]:
        """The ways of every table that a search tries: all of them, but of light ones among many."""
        if len(self.tables) <= MANY_TABLES:
            return self.options
        light = LIGHT * sum(self.weights) / self.ranks.devices
        return [
            [way for way in ways if way.way in ("table", "data")] or ways if weight < light else ways
            for weight, ways in zip(self.weights, self.options, strict=True)
        ]

    @cached_property
    def _shards(self) -> dict[tuple[int, Sharding], tuple[Floats, Floats, float]]:
        return {}

    def shard(self, table: int, sharding: Sharding) -> tuple[Floats, Floats, float]:
        """What a shard of a table puts on its rank, the one with the hottest row first; and bytes that all ranks add up.

        A column a kind of ranks. Bytes of memory are in those of a rank of the first kind: each fills as large a share of it.
        """
        key = (table, sharding)
        if key not in self._shards:
            hot, other = np.empty((LOADS, len(self.kinds.kinds))), np.empty((LOADS, len(self.kinds.kinds)))
            reduced = 0.0
            for number, kind in enumerate(self.kinds.kinds):
                found = loads(self.tables[table], sharding, self.ranks, kind.kernels, self.wire)
                for column, load in ((hot, found[0]), (other, found[-1])):
                    column[:, number] = _vector(load, sharding, pooled=self.tables[table].pooled)
                    column[Load.FORWARD : Load.BACKWARD + 1, number] /= kind.speed
                    column[Load.MEMORY, number] *= self.memory_bytes / max(kind.memory_bytes, 1.0)
                reduced = found[0].reduced_bytes
            self._shards[key] = (hot, other, reduced)
        return self._shards[key]

    def bytes_held(self, load: Floats) -> Floats:
        """Bytes that tables take on every rank."""
        own = np.array([kind.memory_bytes for kind in self.kinds.kinds])[self.kinds.of_rank]
        return np.asarray(load[Load.MEMORY] * own / self.memory_bytes)

    def _on(self, each: Floats, start: int, count: int) -> Floats:
        """The loads of ranks in a row, by their kinds."""
        return each[:, self.kinds.of_rank[start : start + count]] if self._several else each

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
                load[:, rank] += sign * hot[:, self._kind_of[rank]]
        else:
            node = self.ranks.node
            wide = placed.sharding.way in ("row", "data")
            for start, count in [(0, self.ranks.devices)] if wide else [(p * node, node) for p in placed.places]:
                load[:, start : start + count] += sign * self._on(other, start, count)
                hottest = start + self._hot(table, count)
                kind = self._kind_of[hottest]
                load[:, hottest] += sign * (hot[:, kind] - other[:, kind])
        return sign * reduced

    def _hot(self, table: int, ranks: int) -> int:
        """The rank with the hottest row: nothing tells which, so a hash of the table's name does."""
        return zlib.crc32(self.tables[table].name.encode()) % ranks

    def loaded(self, plan: Sequence[PlacedTable]) -> tuple[Floats, float]:
        """The loads of all ranks, and the bytes that all add up: whole tables and columns, most of a plan, at once."""
        load, reduced = np.zeros((LOADS, self.ranks.devices)), 0.0
        ranks: list[int] = []
        parts: list[Floats] = []
        for table, placed in enumerate(plan):
            if placed.sharding.way in ("table", "column"):
                hot, _, more = self.shard(table, placed.sharding)
                ranks += placed.places
                parts += [hot[:, self._kind_of[rank]] for rank in placed.places]
                reduced += more
            else:
                reduced += self.put(load, table, placed)
        if ranks:
            np.add.at(load.T, ranks, np.array(parts))
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

    def told(self, plan: Sequence[PlacedTable]) -> StepTime:
        """A plan's step, every rank by itself (`simulated`)."""
        load, reduced = self.loaded(plan)
        return self.model.told(load, reduced, self.kinds)

    def simulated(self, plan: Sequence[PlacedTable]) -> float:
        """Seconds of a plan's step on the devices, every rank by itself; more than a million where it does not fit."""
        load, reduced = self.loaded(plan)
        over = float(load[Load.MEMORY].max()) - self.memory_bytes
        return 1e6 + over if over > 0 else self.model.told(load, reduced, self.kinds).device_s

    def best_spots(
        self, load: Floats, reduced: float, table: int, sharding: Sharding
    ) -> tuple[PlacedTable, float | None]:
        """A sharding's shards, each where the step is shortest with it, and of equal places where the load is least.

        With them the step's seconds, where there is one shard only, with which they were worked out.
        """
        if self.spots(sharding) == 1:
            whole = sharding.way in ("table", "column", "table-row", "grid")
            return PlacedTable(sharding=sharding, places=(0,) if whole else ()), None
        seconds, tie = self._with_one(load, reduced, table, sharding)
        if sharding.columns == 1:
            level = np.round(seconds, 12)
            shortest = np.flatnonzero(level == level.min())
            spot = int(shortest[tie[shortest].argmin()])
            return PlacedTable(sharding=sharding, places=(spot,)), float(seconds[spot])
        best = np.lexsort((tie, np.round(seconds, 12)))[: sharding.columns]
        return PlacedTable(sharding=sharding, places=tuple(sorted(best.tolist()))), None

    def work_in_all(self, table: int, placed: PlacedTable) -> float:
        """Seconds of look-ups and updates that a placed table adds, over all of its ranks."""
        hot, other, _ = self.shard(table, placed.sharding)
        if placed.sharding.way in ("table", "column"):
            return sum(
                float(hot[Load.FORWARD : Load.BACKWARD + 1, self._kind_of[rank]].sum()) for rank in placed.places
            )
        ranks = self.ranks.devices if not placed.places else len(placed.places) * self.ranks.node
        return ranks * float(other[Load.FORWARD : Load.BACKWARD + 1].mean(axis=1).sum())

    def _with_one(self, load: Floats, reduced: float, table: int, sharding: Sharding) -> tuple[Floats, Floats]:
        """Seconds of the step with one shard at each place, and how much of the largest loads that place then has."""
        hot, other, _ = self.shard(table, sharding)
        devices, nodes, node = self.ranks.devices, self.ranks.nodes, self.ranks.node
        if sharding.way in ("table", "column"):
            with_it = load + self._on(hot, 0, devices)
        else:
            with_it = (load + self._on(other, 0, devices)).reshape(LOADS, nodes, node)
            more = np.broadcast_to(self._on(hot - other, 0, devices), load.shape).reshape(LOADS, nodes, node)
            hottest = self._hot(table, node)
            with_it[:, :, hottest] += more[:, :, hottest]
            with_it = with_it.max(axis=2)
        most = load.max(axis=1)
        seconds = self.judged(np.maximum(most[:, None], with_it), reduced)
        return seconds, (with_it / np.maximum(most, 1e-30)[:, None]).sum(axis=0)


def _vector(load: ShardLoad, sharding: Sharding, *, pooled: bool) -> Floats:
    found = np.zeros(LOADS)
    found[Load.FORWARD], found[Load.BACKWARD] = load.forward_s, load.backward_s
    found[Load.INPUT], found[Load.MEMORY] = load.input_bytes, load.memory_bytes
    if sharding.way in _CARRIED_BY:
        # Rows that are not pooled need no sums: an all-to-all carries them, whatever rank they are of.
        found[_CARRIED_BY[sharding.way] if pooled else Load.TABLE] = load.pooled_bytes
    return found
