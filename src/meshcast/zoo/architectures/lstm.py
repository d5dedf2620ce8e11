"""An LSTM language model (Zaremba 2014): a scan over time for every layer, data-parallel.

The products with the layer's inputs are one product over the whole sequence; only those with the state wait in line.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import forward_program, supervised_program
from meshcast.zoo.layers.pieces import BATCH, embed
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.lstm import LstmConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp")


def weights(config: LstmConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; the four gates stand side by side."""
    square = ShardedWeight((config.dim, 4 * config.dim), ("fsdp", None))
    return {
        "embedding": ShardedWeight((config.vocab, config.dim), (None, "fsdp")),
        "layers": [
            {"inputs": square, "state": square, "bias": ShardedWeight((4 * config.dim,))} for _ in range(config.layers)
        ],
        "head": ShardedWeight((config.dim, config.vocab), ("fsdp", None)),
        "head_bias": ShardedWeight((config.vocab,)),
    }


def cell(carry: tuple[jax.Array, jax.Array], inputs: jax.Array, state: jax.Array) -> tuple[Any, jax.Array]:
    """One position: gates i, f, o and candidate g; c = f c + i g, h = o tanh(c)."""
    h, c = carry
    i, f, o, g = jnp.split(inputs + h @ state, 4, axis=-1)
    memory = jax.nn.sigmoid(f.astype(jnp.float32)) * c
    memory = memory + jax.nn.sigmoid(i.astype(jnp.float32)) * jnp.tanh(g.astype(jnp.float32))
    h = (jax.nn.sigmoid(o.astype(jnp.float32)) * jnp.tanh(memory)).astype(h.dtype)
    return (h, memory), h


def logits(params: Any, tokens: jax.Array, *, config: LstmConfig, layout: MeshLayout) -> jax.Array:
    """Logits (B, S, vocabulary) of every position."""
    params = layout.gather(params, weights(config))
    batch = tokens.shape[0]
    x = layout.constrain(embed(params["embedding"], tokens, layout), BATCH, None, None)
    for w in params["layers"]:
        inputs = layout.constrain((x @ w["inputs"] + w["bias"]).swapaxes(0, 1), None, BATCH, None)
        start = (jnp.zeros((batch, config.dim), x.dtype), jnp.zeros((batch, config.dim), jnp.float32))
        start = (layout.constrain(start[0], BATCH, None), layout.constrain(start[1], BATCH, None))
        _, outputs = jax.lax.scan(partial(cell, state=w["state"]), start, inputs)
        x = layout.constrain(outputs.swapaxes(0, 1), BATCH, None, None)
    return layout.constrain(x @ params["head"] + params["head_bias"], BATCH, None, None)


def train_step(
    config: LstmConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    seq: int = 35,
    accumulate: int = 1,
    zero: int = 0,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["tokens"], config=config, layout=layout)

    rows = ((batch, seq), jnp.int32)
    return supervised_program(
        layout, weights(config), score, {"tokens": rows, "targets": rows}, labels="targets",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: LstmConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    seq: int = 35,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["tokens"], config=config, layout=layout)

    result = layout.struct((batch, seq, config.vocab), param_dtype, BATCH)
    tokens = {"tokens": ((batch, seq), jnp.int32)}
    return forward_program(layout, weights(config), score, tokens, result, param_dtype=param_dtype)
