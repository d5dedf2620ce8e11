"""DLRM (Naumov 2019): embedding tables split over the devices that train the dense layers data-parallel.

Placement "table" gives each device whole tables: indices go to the tables and pooled vectors come back, both by
all-to-all. Placement "row" gives each device a range of every table's rows: indices are gathered, partial sums are
reduce-scattered. Either way the tables are updated by the rows touched, never by a dense gradient.

Tables, or rows, that the devices do not divide are spread unevenly: the program has the slots of the fullest device on all
of them, whose lookups, traffic and memory bound the step, and the slots that nobody has are filled up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.optimizers import sgd, sgd_state
from meshcast.zoo.program import ModelProgram, jit_options, microbatched
from meshcast.zoo.shapes.dlrm import DlrmConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data",)
Placement = Literal["table", "row"]


def slots(config: DlrmConfig, placement: Placement, devices: int) -> tuple[int, int]:
    """Tables, and rows of a table, with those that fill up every device to what the fullest has."""

    def filled(count: int) -> int:
        return -(-count // devices) * devices

    return (filled(config.tables), config.rows) if placement == "table" else (config.tables, filled(config.rows))


def remarks(config: DlrmConfig, mesh: Mapping[str, int] | None, placement: Placement = "table") -> tuple[str, ...]:
    """What a prediction says of tables that the devices do not divide."""
    devices = (mesh or {}).get("data", 1)
    tables, rows = slots(config, placement, devices)
    if tables > config.tables:
        idle = max(0, devices - config.tables)
        share = f", and {idle} devices have none (placement=row would use them)" if idle else ""
        return (
            f"{config.tables} tables on {devices} devices: the fullest has {tables // devices}, and the step and its memory "
            f"are its own{share}",
        )
    if rows > config.rows:
        return (
            f"{config.rows:,} rows of a table on {devices} devices: padded to {rows:,}, {rows // devices:,} on each",
        )
    return ()


def weights(config: DlrmConfig, placement: Placement = "table", devices: int = 1, align: int = 1) -> dict[str, Any]:
    """Every parameter's shape and storage; dense layers are replicated, tables filled up for so many devices.

    What the top layers read is a multiple of `align` wide: NVIDIA's recipe fills it up with zeros, as tensor cores want rows of
    16 bytes (DeepLearningExamples, PyTorch/Recommendation/DLRM, dlrm/nn/interactions.py).
    """
    features = config.tables + 1
    crossed = features * config.dim
    read = crossed if config.crosses else config.dim + features * (features - 1) // 2
    widths = {
        "bottom": (config.dense, *config.bottom),
        "top": (-(-read // align) * align, *config.top),
    }
    dense = {
        name: [{"kernel": ShardedWeight(pair), "bias": ShardedWeight(pair[1:])} for pair in pairwise(sizes)]
        for name, sizes in widths.items()
    }
    if config.crosses:
        dense["cross"] = [
            {
                "down": ShardedWeight((crossed, config.cross_rank)),
                "kernel": ShardedWeight((config.cross_rank, crossed)),
                "bias": ShardedWeight((crossed,)),
            }
            for _ in range(config.crosses)
        ]
    stored = {"table": ("data", None, None), "row": (None, "data", None)}[placement]
    return {"dense": dense, "tables": ShardedWeight((*slots(config, placement, devices), config.dim), stored)}


def mlp(x: jax.Array, layers: list[dict[str, jax.Array]], *, last: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Dense layers with ReLU between them and `last` at the end."""
    for index, layer in enumerate(layers):
        x = x @ layer["kernel"] + layer["bias"]
        x = jax.nn.relu(x) if index < len(layers) - 1 else last(x)
    return x


def interact(dense: jax.Array, pooled: jax.Array) -> jax.Array:
    """The dense vector (B, D) and the dot products of every pair of features of `pooled` (B, T, D) and it."""
    features = jnp.concatenate([dense[:, None], pooled], axis=1)
    products = jnp.einsum("bid,bjd->bij", features, features)
    rows, columns = jnp.tril_indices(features.shape[1], k=-1)
    return jnp.concatenate([dense, products[:, rows, columns]], axis=1)


def cross(dense: jax.Array, pooled: jax.Array, layers: list[dict[str, jax.Array]]) -> jax.Array:
    """All features behind each other, x0, in cross layers of low rank: `x <- x0 * (U V x + b) + x` (DCN V2, section 3.4)."""
    first = jnp.concatenate([dense[:, None], pooled], axis=1).reshape(dense.shape[0], -1)
    x = first
    for layer in layers:
        x = first * (x @ layer["down"] @ layer["kernel"] + layer["bias"]) + x
    return x


def pool(tables: jax.Array, indices: jax.Array) -> jax.Array:
    """Sums (B, T, D) of the rows that indices (B, T, hots) name."""
    rows = jax.vmap(lambda table, index: jnp.take(table, index, axis=0, mode="clip"), (0, 1), 1)(tables, indices)
    return jnp.sum(rows, axis=2)


def add_rows(tables: jax.Array, indices: jax.Array, update: jax.Array) -> jax.Array:
    """Tables with an update (B, T, D) added to every row that was pooled into it."""

    def add(table: jax.Array, index: jax.Array, row: jax.Array) -> jax.Array:
        return table.at[index].add(jnp.broadcast_to(row[:, None], (*index.shape, row.shape[-1])), mode="drop")

    return jax.vmap(add, (0, 1, 1))(tables, indices, update.astype(tables.dtype))


def own_rows(tables: jax.Array, indices: jax.Array) -> jax.Array:
    """Indices relative to this shard's rows, those of other shards moved past its end; inside a shard_map."""
    local = indices - jax.lax.axis_index("data") * tables.shape[1]
    return jnp.where((local >= 0) & (local < tables.shape[1]), local, tables.shape[1])


def pool_by_row(tables: jax.Array, indices: jax.Array) -> jax.Array:
    """`pool` where each shard of "data" has a range of the rows, and of the batch."""
    everyone = jax.lax.all_gather(indices, "data", tiled=True)
    rows = jax.vmap(lambda table, index: jnp.take(table, index, axis=0, mode="fill", fill_value=0), (0, 1), 1)(
        tables, own_rows(tables, everyone)
    )
    pooled: jax.Array = jax.lax.psum_scatter(jnp.sum(rows, axis=2), "data", tiled=True)
    return pooled


def add_rows_by_row(tables: jax.Array, indices: jax.Array, update: jax.Array) -> jax.Array:
    """`add_rows` where each shard of "data" has a range of the rows, and of the batch."""
    everyone = jax.lax.all_gather(indices, "data", tiled=True)
    return add_rows(tables, own_rows(tables, everyone), jax.lax.all_gather(update, "data", tiled=True))


def train_step(
    config: DlrmConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 2048,
    accumulate: int = 1,
    placement: Placement = "table",
    align: int = 1,
    learning_rate: float = 0.1,
    param_dtype: DTypeLike = "float32",
) -> ModelProgram:
    """One step, SGD with momentum for the dense layers and plain for the tables: `-> (params, opt_state, loss)`.

    Microbatches look up the tables as they were before the step, and add their rows after the last of them.
    """
    if placement not in ("table", "row"):
        raise UsageError(f"placement {placement!r} is not one", fix="choose table or row")
    layout = MeshLayout.of(mesh, axes=AXES)
    by_row = placement == "row" and layout.size("data") > 1
    at_tables, at_home = (None, "data", None), ("data", None, None)
    samples, ranges = layout.spec("data"), layout.spec(None, "data")
    held, _ = slots(config, placement, layout.size("data"))

    def filled(x: jax.Array) -> jax.Array:
        """Something of every table (B, T, ...), with that of the slots which no table has."""
        return jnp.pad(x, ((0, 0), (0, held - config.tables), (0, 0))) if held > config.tables else x

    def lookup(tables: jax.Array, indices: jax.Array) -> jax.Array:
        if by_row:
            specs = (ranges, samples)
            return jax.shard_map(pool_by_row, mesh=layout.mesh, in_specs=specs, out_specs=samples)(tables, indices)
        pooled = layout.constrain(pool(tables, indices), *at_tables)
        pooled = layout.constrain(pooled, *at_home)
        return pooled[:, : config.tables] if held > config.tables else pooled

    def update(tables: jax.Array, indices: jax.Array, step: jax.Array) -> jax.Array:
        if by_row:
            add = jax.shard_map(
                add_rows_by_row, mesh=layout.mesh, in_specs=(ranges, samples, samples), out_specs=ranges
            )
            return add(tables, indices, step)
        return add_rows(tables, indices, layout.constrain(filled(step), *at_tables))

    def loss(dense: Any, pooled: jax.Array, batch: Any) -> jax.Array:
        bottom = mlp(batch["dense"], dense["bottom"], last=jax.nn.relu)
        read = cross(bottom, pooled, dense["cross"]) if config.crosses else interact(bottom, pooled)
        unused = dense["top"][0]["kernel"].shape[0] - read.shape[1]
        read = jnp.pad(read, ((0, 0), (0, unused))) if unused else read
        click = mlp(read, dense["top"], last=partial(jnp.squeeze, axis=-1))
        return jnp.mean(jax.nn.softplus(click) - batch["labels"] * click)

    def named_rows(batch: Any) -> jax.Array:
        return batch["indices"] if by_row else layout.constrain(filled(batch["indices"]), *at_tables)

    def gradients(params: Any, batch: Any) -> tuple[Any, jax.Array]:
        """The loss and the dense layers' gradients, and those of the pooled rows."""
        pooled = lookup(params["tables"], named_rows(batch))
        value, (grads, row_grads) = jax.value_and_grad(loss, (0, 1))(params["dense"], pooled, batch)
        return (value, grads), row_grads

    def added(tables: jax.Array, batch: Any, row_grads: jax.Array) -> jax.Array:
        step = -learning_rate / accumulate * layout.constrain(row_grads, *at_home)
        return update(tables, named_rows(batch), step)

    def train_step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        if accumulate == 1:
            (value, grads), row_grads = gradients(params, batch)
            tables = added(params["tables"], batch, row_grads)
        else:

            def add(total: Any, microbatch: Any) -> tuple[Any, jax.Array]:
                new, row_grads = gradients(params, microbatch)
                return jax.tree.map(jnp.add, total, new), row_grads

            start = jax.tree.map(jnp.zeros_like, (jnp.zeros((), param_dtype), params["dense"]))
            total, row_grads = jax.lax.scan(add, start, batch)
            value, grads = jax.tree.map(lambda sum: sum / accumulate, total)
            tables, _ = jax.lax.scan(
                lambda tables, each: (added(tables, *each), None), params["tables"], (batch, row_grads)
            )
        dense, opt_state = sgd(params["dense"], grads, opt_state, learning_rate=learning_rate)
        return {"dense": dense, "tables": tables}, opt_state, value

    params = layout.params(weights(config, placement, layout.size("data"), align), param_dtype)
    data = microbatched(
        layout,
        accumulate,
        dense=((batch, config.dense), param_dtype),
        indices=((batch, config.tables, config.hots), jnp.int32),
        labels=((batch,), param_dtype),
    )
    opt_state = sgd_state(params["dense"])
    results = (params, opt_state, layout.struct((), param_dtype))
    return train_step, (params, opt_state, data), jit_options(layout, donate=(0, 1), results=results)
