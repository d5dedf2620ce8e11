"""GNMT v2 (Wu 2016, as MLPerf's reference and NVIDIA's examples have it): LSTMs that translate, data-parallel.

The first layer of the encoder reads both ways; from the third layer of either side on, what a layer makes is added to what it
reads. The decoder's first layer attends (Bahdanau 2015, normalised), and every further one, and the output projection, reads what
it attended to beside its own input. In training the translation is known, so that layers walk it one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.lstm import AXES, cell
from meshcast.zoo.frame import Fields, forward_program, supervised_program
from meshcast.zoo.layers.pieces import BATCH, embed
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.translation import GnmtConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

_PLAIN = 2  # layers of a side whose input is not added to their output


def lstm_weights(inputs: int, dim: int) -> dict[str, ShardedWeight]:
    """One layer: the four gates stand side by side."""
    return {
        "inputs": ShardedWeight((inputs, 4 * dim), ("fsdp", None)),
        "state": ShardedWeight((dim, 4 * dim), ("fsdp", None)),
        "bias": ShardedWeight((4 * dim,)),
    }


def weights(config: GnmtConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; cuDNN's second bias of a gate is left out."""
    dim, further = config.dim, config.layers - 1
    return {
        "embedding": ShardedWeight((config.vocab, dim), (None, "fsdp")),
        "encoder": {
            "ahead": lstm_weights(dim, dim),
            "back": lstm_weights(dim, dim),
            "layers": [lstm_weights(2 * dim if place == 0 else dim, dim) for place in range(further)],
        },
        "attention": {
            "query": ShardedWeight((dim, dim), ("fsdp", None)),
            "key": ShardedWeight((dim, dim), ("fsdp", None)),
            "score": ShardedWeight((dim,)),
            "scale": ShardedWeight((1,)),
            "bias": ShardedWeight((dim,)),
        },
        "decoder": {"first": lstm_weights(dim, dim), "layers": [lstm_weights(2 * dim, dim) for _ in range(further)]},
        "head": ShardedWeight((dim, config.vocab), ("fsdp", None)),
        "head_bias": ShardedWeight((config.vocab,)),
    }


def walked(x: jax.Array, w: dict[str, jax.Array], layout: MeshLayout, *, back: bool = False) -> jax.Array:
    """An LSTM over (B, S, inputs): products with inputs are one, those with the state wait in line."""
    dim = w["state"].shape[0]
    inputs = layout.constrain((x @ w["inputs"] + w["bias"]).swapaxes(0, 1), None, BATCH, None)
    start = tuple(layout.constrain(jnp.zeros((x.shape[0], dim), t), BATCH, None) for t in (x.dtype, jnp.float32))
    _, outputs = jax.lax.scan(partial(cell, state=w["state"]), start, inputs, reverse=back)
    return layout.constrain(outputs.swapaxes(0, 1), BATCH, None, None)


def encoded(side: Any, x: jax.Array, layout: MeshLayout) -> jax.Array:
    """The source (B, T, dim) after the encoder's layers."""
    both = [walked(x, side["ahead"], layout), walked(x, side["back"], layout, back=True)]
    x = jnp.concatenate(both, axis=-1)
    for place, w in enumerate(side["layers"], start=1):
        made = walked(x, w, layout)
        x = made + x if place >= _PLAIN else made
    return x


def attended(h: jax.Array, memory: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """What every position of h (B, S, dim) takes of the source (B, T, dim).

        score = g v / |v| . tanh(W q + U k + b)

    which is an array of (B, S, T, dim).
    """
    query, key = h @ w["query"], memory @ w["key"]
    length = jnp.sum(jnp.square(w["score"].astype(jnp.float32)))
    direction = w["score"] * jax.lax.rsqrt(length + 1e-6).astype(h.dtype)
    together = jnp.tanh(query[:, :, None] + key[:, None] + w["bias"])
    scores = jnp.einsum("bstd,d->bst", together, direction * w["scale"])
    shares = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(h.dtype)
    return jnp.einsum("bst,btd->bsd", shares, memory)


def logits(params: Any, data: Any, *, config: GnmtConfig, layout: MeshLayout) -> jax.Array:
    """Logits (B, S, vocabulary) of every position of the translation."""
    params = layout.gather(params, weights(config))
    memory = encoded(params["encoder"], embed(params["embedding"], data["inputs"], layout), layout)
    x = walked(embed(params["embedding"], data["tokens"], layout), params["decoder"]["first"], layout)
    seen = attended(x, memory, params["attention"])
    for place, w in enumerate(params["decoder"]["layers"], start=1):
        made = walked(jnp.concatenate([x, seen], axis=-1), w, layout)
        x = made + x if place >= _PLAIN else made
    return layout.constrain(x @ params["head"] + params["head_bias"], BATCH, None, None)


def train_step(
    config: GnmtConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 128,
    seq: int = 28,
    target: int = 0,
    accumulate: int = 1,
    zero: int = 0,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step on sentences of `seq` tokens and their translations of `target`, as many where that is zero."""
    layout = MeshLayout.of(mesh, axes=AXES)
    score = partial(logits, config=config, layout=layout)
    rows, outputs = ((batch, seq), jnp.int32), ((batch, target or seq), jnp.int32)
    fields: Fields = {"inputs": rows, "tokens": outputs, "targets": outputs}
    return supervised_program(
        layout, weights(config), score, fields, labels="targets",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: GnmtConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 128,
    seq: int = 28,
    target: int = 0,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position of the translation."""
    layout = MeshLayout.of(mesh, axes=AXES)
    score = partial(logits, config=config, layout=layout)
    fields: Fields = {"inputs": ((batch, seq), jnp.int32), "tokens": ((batch, target or seq), jnp.int32)}
    result = layout.struct((batch, target or seq, config.vocab), param_dtype, BATCH)
    return forward_program(layout, weights(config), score, fields, result, param_dtype=param_dtype)
