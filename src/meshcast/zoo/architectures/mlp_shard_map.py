"""A residual MLP whose tensor parallelism is written by hand with `jax.shard_map`, inside a training step.

Three ways to the same function, by the collectives around its two products:

- "psum": tokens whole on every tensor shard, one all-reduce after the second product (Megatron);
- "scatter": tokens split over "tensor" too, all-gathered before and reduce-scattered after (sequence parallel);
- "ring": as "scatter", the gather unrolled into a ring of ppermutes that the first product can hide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.layers.pieces import cast
from meshcast.zoo.program import ModelProgram, adamw_program
from meshcast.zoo.shapes.mlp import MlpConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "tensor")
Scheme = Literal["psum", "scatter", "ring"]


def weights(config: MlpConfig) -> dict[str, ShardedWeight]:
    """Every parameter's shape and storage; layers are stacked on a leading axis."""
    return {
        "up": ShardedWeight((config.dim, config.ffn), (None, "tensor")).stacked(config.layers),
        "down": ShardedWeight((config.ffn, config.dim), ("tensor", None)).stacked(config.layers),
    }


def ring_product(x: jax.Array, weight: jax.Array, shards: int) -> jax.Array:
    """The product of all shards' tokens, in order, with this shard's columns: a product per step of the ring."""
    own = jax.lax.axis_index("tensor")
    towards_previous = [(source, (source - 1) % shards) for source in range(shards)]
    parts = []
    for step in range(shards):
        parts.append(x @ weight)
        if step < shards - 1:
            x = jax.lax.ppermute(x, "tensor", towards_previous)
    # Part i came from shard own + i; rolling by `own` puts the tokens in their order.
    return jnp.roll(jnp.stack(parts), own, axis=0).reshape(-1, weight.shape[1])


def local_block(x: jax.Array, up: jax.Array, down: jax.Array, *, scheme: Scheme, shards: int) -> jax.Array:
    """One block as one device computes it, on its tokens and its columns of `up`, rows of `down`."""
    if shards == 1:
        return x + jax.nn.gelu(x @ up) @ down
    y: jax.Array
    if scheme == "psum":
        y = jax.lax.psum(jax.nn.gelu(x @ up) @ down, "tensor")
        return x + y
    h = ring_product(x, up, shards) if scheme == "ring" else jax.lax.all_gather(x, "tensor", tiled=True) @ up
    y = jax.lax.psum_scatter(jax.nn.gelu(h) @ down, "tensor", tiled=True)
    return x + y


def train_step(
    config: MlpConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 4096,
    scheme: Scheme = "psum",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step on `batch` tokens: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    if scheme not in ("psum", "scatter", "ring"):
        raise UsageError(f"scheme {scheme!r} is not one", fix="choose psum, scatter or ring")
    layout = MeshLayout.of(mesh, axes=AXES)
    shards, tree = layout.size("tensor"), weights(config)
    tokens = "data" if scheme == "psum" else ("data", "tensor")

    def stack(params: Any, x: jax.Array) -> jax.Array:
        def body(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
            return local_block(x, w["up"], w["down"], scheme=scheme, shards=shards), None

        return jax.lax.scan(body, x, params)[0]

    def loss(params: Any, batch: Any) -> jax.Array:
        run = stack
        if layout.mesh is not None:
            specs = jax.tree.map(lambda weight: layout.spec(*weight.axes), tree)
            rows = layout.spec(tokens, None)
            run = jax.shard_map(stack, mesh=layout.mesh, in_specs=(specs, rows), out_specs=rows)
        y = run(cast(params, compute_dtype), batch["inputs"].astype(compute_dtype))
        return jnp.mean(jnp.square(y.astype(jnp.float32) - batch["targets"]))

    params = layout.params(tree, param_dtype)
    data = {name: layout.struct((batch, config.dim), jnp.float32, tokens, None) for name in ("inputs", "targets")}
    return adamw_program(layout, loss, params, data)
