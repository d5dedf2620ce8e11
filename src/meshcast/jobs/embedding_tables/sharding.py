"""Ways to share a table out over ranks, as torchrec has them, and what each puts on a rank.

With `n` ranks in nodes of `g`, a global batch `B = n b`, pooling `L`, dimension `D` and `w` bytes an element on the wire:

- table: one rank has all rows; it receives `B L` indices and sends `B D w` bytes of pooled rows.
- column: `k` ranks have `D / k` columns each; every one receives all indices, and sends `B D w / k`.
- row: every rank has `1/n` of the rows, receives about `B L / n` indices, and sends partial sums, `B D w`, which a
  reduce-scatter adds up.
- table-row: the rows of a table are spread over the ranks of one node, which add up among themselves before they send to
  other nodes.
- grid: columns over several nodes, and the rows of each over the ranks of its node.
- data: every rank has the table and looks its own samples up; gradients are dense, and all-reduced with those of the dense
  layers.

Rows that are not pooled (sequence embeddings) are sent one by one: `B L D w` bytes, of which a rank that has a part of the
rows sends its own, by all-to-all instead of a reduce-scatter.

Backwards the same bytes go the other way. The rank that has the hottest row gets its look-ups on top of an even share.
Source: https://docs.pytorch.org/torchrec/ (ShardingType), and "TorchRec: a PyTorch Domain Library for Recommendation
Systems", RecSys 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels
from meshcast.jobs.embedding_tables.table import STATE_BYTES, EmbeddingTable
from meshcast.jobs.embedding_tables.traffic import LookUps

INDEX_BYTES, LENGTH_BYTES = 8, 4  # of a KeyedJaggedTensor: int64 values, int32 lengths
SORT_BYTES = 40  # of an index while it is sorted: keys and places twice, and where its run begins
LEAST_COLUMNS = 32  # torchrec's MIN_CW_DIM: column shards are not made narrower by its planner


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRanks:
    """The ranks of a job: `devices` of them in nodes of `node`, with `batch` samples each."""

    devices: int
    node: int
    batch: int

    @property
    def nodes(self) -> int:
        """Nodes; the last one may have fewer ranks."""
        return -(-self.devices // self.node)

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.batch * self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """A way, and into how many parts its columns are cut."""

    way: str
    columns: int = 1

    def __str__(self) -> str:
        return f"{self.way}/{self.columns}" if self.columns > 1 else self.way


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoad:
    """What one shard puts on the rank that has it.

    Attributes:
        forward_s: Seconds of its look-ups, beside the launch.
        backward_s: Seconds of its update.
        input_bytes: Received as indices and lengths.
        pooled_bytes: Sent of pooled rows forwards, and received of their gradients backwards.
        memory_bytes: Weights, optimizer state, and what stays between the passes.
        reduced_bytes: Dense gradients that all ranks add up.
    """

    forward_s: float
    backward_s: float
    input_bytes: float = 0.0
    pooled_bytes: float = 0.0
    memory_bytes: float = 0.0
    reduced_bytes: float = 0.0


def shardings(table: EmbeddingTable, ranks: TrainerRanks, *, most_data_bytes: float = 0.0) -> Iterator[Sharding]:
    """Every way that a table can take on these ranks; tables up to so many bytes may be on all of them."""
    allowed = table.ways or ("table", "column", "row", "table-row", "grid", "data")
    parts = [k for k in _divisors(table.dim) if k > 1 and table.dim // k >= LEAST_COLUMNS]
    if "table" in allowed or ranks.devices == 1:  # on one device every way is the whole table
        yield Sharding(way="table")
    if ranks.devices == 1:
        return
    if "column" in allowed:
        yield from (Sharding(way="column", columns=k) for k in parts if k <= ranks.devices)
    if "row" in allowed and table.rows >= ranks.devices:
        yield Sharding(way="row")
    if ranks.nodes > 1 and ranks.devices % ranks.node == 0 and table.rows >= ranks.node:
        if "table-row" in allowed:
            yield Sharding(way="table-row")
        if "grid" in allowed:
            yield from (Sharding(way="grid", columns=k) for k in parts if k <= ranks.nodes)
    if "data" in allowed and (table.weight_bytes <= most_data_bytes or table.ways == ("data",)):
        yield Sharding(way="data")


def _divisors(number: int) -> list[int]:
    return [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if number % k == 0]


def loads(
    table: EmbeddingTable, sharding: Sharding, ranks: TrainerRanks, kernels: EmbeddingKernels, wire: float
) -> list[ShardLoad]:
    """One load, or two where the first shard has the hottest row: what a shard puts on its rank.

    Args:
        table: The table.
        sharding: How it is cut.
        ranks: The job's ranks.
        kernels: Seconds of look-ups and updates on the device.
        wire: Bytes of an element of a pooled row that is sent.
    """
    rows_over = _rows_over(sharding, ranks)
    batch = ranks.batch if sharding.way == "data" else ranks.global_batch
    dim = table.dim // sharding.columns
    look_ups = batch * table.pooling
    hot = table.picked.hottest(1.0) if rows_over > 1 else 0.0
    shares = [hot + (1 - hot) / rows_over, (1 - hot) / rows_over] if hot * rows_over > 0.02 else [1 / rows_over]
    return [_load(table, sharding, kernels, wire, rows_over, dim, batch, look_ups * share) for share in shares]


def _rows_over(sharding: Sharding, ranks: TrainerRanks) -> int:
    """Ranks that a table's rows are spread over."""
    return {"row": ranks.devices, "table-row": ranks.node, "grid": ranks.node}.get(sharding.way, 1)


def _load(
    table: EmbeddingTable, sharding: Sharding, kernels: EmbeddingKernels, wire: float, rows_over: int, dim: int, batch: int,
    look_ups: float,
) -> ShardLoad:  # fmt: skip
    rows = -(-table.rows // rows_over)
    work = _work(table, rows_over, dim, batch, look_ups)
    moved, host = kernels.traffic(work), kernels.from_host(work)
    stored = float(rows * (dim * table.element_bytes + _state(table, dim)))
    if table.cached is not None:
        stored *= table.cached
    bags = table.bags(batch)
    if not table.pooled and rows_over > 1:
        bags = look_ups  # a rank has nothing to say of rows that are others'
    results = 2 * bags * dim * 4  # pooled rows and their gradients
    if sharding.way == "data":
        dense = float(rows * dim * 4)
        return ShardLoad(
            forward_s=float(kernels.forward(moved)) + host,
            backward_s=float(kernels.dense_backward(moved, dense)) + host,
            memory_bytes=stored + dense + results,
            reduced_bytes=dense,
        )
    return ShardLoad(
        forward_s=float(kernels.forward(moved)) + host,
        backward_s=float(kernels.backward(moved)) + host,
        input_bytes=look_ups * INDEX_BYTES + batch * LENGTH_BYTES,
        pooled_bytes=bags * dim * wire,
        memory_bytes=stored + results + look_ups * (INDEX_BYTES + SORT_BYTES),
    )


def _work(table: EmbeddingTable, rows_over: int, dim: int, batch: int, look_ups: float) -> LookUps:
    return LookUps(
        picked=table.picked.part(rows_over), dim=dim, element_bytes=table.element_bytes, look_ups=look_ups,
        bags=batch if table.pooled else look_ups, spread=table.spread / rows_over if table.pooled else 0.0,
        state_bytes=_state(table, dim), cached=table.cached, hits=table.hits,
    )  # fmt: skip


def moved_bytes(table: EmbeddingTable, sharding: Sharding, ranks: TrainerRanks, kernels: EmbeddingKernels) -> float:
    """Bytes that a shard's look-ups and update move out of and into memory: rows missed, pooled rows, and rows written."""
    rows_over = _rows_over(sharding, ranks)
    batch = ranks.batch if sharding.way == "data" else ranks.global_batch
    moved = kernels.traffic(
        _work(table, rows_over, table.dim // sharding.columns, batch, batch * table.pooling / rows_over)
    )
    looked_up = moved.missed * moved.row_bytes + 2 * moved.bags * moved.result_bytes
    return float(looked_up + 2 * moved.different * (moved.row_bytes + moved.state_bytes))


def longest_parts(
    tables: Sequence[EmbeddingTable], ranks: TrainerRanks, kernels: EmbeddingKernels
) -> tuple[float, float]:
    """Seconds of the longest block of any table's look-ups, and of the longest chain of any update."""
    blocks, chains = [0.0], [0.0]
    for table in tables:
        moved = kernels.traffic(_work(table, 1, table.dim, ranks.global_batch, ranks.global_batch * table.pooling))
        blocks.append(float(kernels.forward_block(moved)))
        chains.append(float(kernels.backward_chain(moved)))
    return max(blocks), max(chains)


def _state(table: EmbeddingTable, dim: int) -> int:
    """State of a row's columns: what a whole row has once, every shard has."""
    once, each = STATE_BYTES[table.optimizer]
    return once + each * dim
