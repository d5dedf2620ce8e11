"""A transducer of speech (Graves 2012, RNN-T), as MLPerf's reference has it: LSTMs over sound and text, joined at all pairs.

The loss is the probability of all ways through the lattice of T frames and U pieces of text:

    a(t, u) = log(exp(a(t - 1, u) + blank(t - 1, u)) + exp(a(t, u - 1) + piece(t, u - 1)))

walked frame by frame; along u it is an associative scan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.gnmt import lstm_weights, walked
from meshcast.zoo.architectures.lstm import AXES
from meshcast.zoo.layers.pieces import BATCH, cast, embed
from meshcast.zoo.program import ModelProgram, adamw_program, jit_options, microbatched
from meshcast.zoo.shapes.rnnt import RnntConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight


def weights(config: RnntConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; cuDNN's second bias of a gate is left out."""
    dim, reads = config.dim, config.read_dim
    inputs = [
        config.features,
        *(dim,) * (config.before - 1),
        config.stack * dim,
        *(dim,) * (config.layers - config.before - 1),
    ]

    def linear(inputs: int, outputs: int) -> dict[str, ShardedWeight]:
        return {"kernel": ShardedWeight((inputs, outputs), ("fsdp", None)), "bias": ShardedWeight((outputs,))}

    return {
        "encoder": [lstm_weights(each, dim) for each in inputs],
        "embedding": ShardedWeight((config.vocab - 1, reads), (None, "fsdp")),
        "reader": [lstm_weights(reads, reads) for _ in range(config.read_layers)],
        "sound": linear(dim, config.joint),
        "text": linear(reads, config.joint),
        "head": linear(config.joint, config.vocab),
    }


def logits(params: Any, sound: jax.Array, tokens: jax.Array, *, config: RnntConfig, layout: MeshLayout) -> jax.Array:
    """Scores (B, T, U + 1, vocabulary) of what comes next at every pair of positions."""
    params = layout.gather(params, weights(config))
    x = sound
    for place, w in enumerate(params["encoder"]):
        if place == config.before:
            x = x.reshape(x.shape[0], x.shape[1] // config.stack, -1)
        x = walked(x, w, layout)
    y = jnp.pad(embed(params["embedding"], tokens, layout), ((0, 0), (1, 0), (0, 0)))
    for w in params["reader"]:
        y = walked(y, w, layout)
    heard = x @ params["sound"]["kernel"] + params["sound"]["bias"]
    read = y @ params["text"]["kernel"] + params["text"]["bias"]
    together = layout.constrain(jax.nn.relu(heard[:, :, None] + read[:, None]), BATCH, None, None, None)
    return layout.constrain(together @ params["head"]["kernel"] + params["head"]["bias"], BATCH, None, None, None)


def transducer_loss(scores: jax.Array, tokens: jax.Array) -> jax.Array:
    """The mean of -log p over all ways of writing tokens (B, U) down; class 0 writes nothing and goes on to the next frame."""
    scores = jax.nn.log_softmax(scores.astype(jnp.float32), axis=-1)
    blank = scores[..., 0]
    piece = jnp.take_along_axis(scores[:, :, :-1], tokens[:, None, :, None], axis=-1)[..., 0]

    def combine(left: Any, right: Any) -> Any:
        (gain, value), (further, other) = left, right
        return gain + further, jnp.logaddexp(value + further, other)

    def frame(before: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        entered, gains = now
        start = jnp.pad(gains, ((0, 0), (1, 0)))
        _, alpha = jax.lax.associative_scan(combine, (start, before + entered), axis=1)
        return alpha, None

    rows = tokens.shape[0]
    first = jnp.concatenate([jnp.zeros((rows, 1)), jnp.cumsum(piece[:, 0], axis=1)], axis=1)
    walk = (blank[:, :-1].swapaxes(0, 1), piece[:, 1:].swapaxes(0, 1))
    last, _ = jax.lax.scan(frame, first, walk)
    return -jnp.mean(last[:, -1] + blank[:, -1, -1])


def train_step(
    config: RnntConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    seq: int = 512,
    target: int = 128,
    accumulate: int = 1,
    zero: int = 0,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step on `seq` frames of sound and `target` pieces of text."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def loss(params: Any, batch: Any) -> jax.Array:
        sound = batch["sound"].astype(compute_dtype)
        scores = logits(cast(params, compute_dtype), sound, batch["tokens"], config=config, layout=layout)
        return transducer_loss(scores, batch["tokens"])

    data = microbatched(
        layout, accumulate, sound=((batch, seq, config.features), jnp.float32), tokens=((batch, target), jnp.int32)
    )
    return adamw_program(
        layout, loss, layout.params(weights(config), param_dtype), data, accumulate=accumulate, zero=zero
    )


def forward(
    config: RnntConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    seq: int = 512,
    target: int = 128,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> scores` of what comes next at every pair of positions."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def forward(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["sound"], batch["tokens"], config=config, layout=layout)

    data = {
        "sound": layout.struct((batch, seq, config.features), param_dtype, BATCH),
        "tokens": layout.struct((batch, target), jnp.int32, BATCH),
    }
    result = layout.struct((batch, seq // config.stack, target + 1, config.vocab), param_dtype, BATCH)
    return forward, (layout.params(weights(config), param_dtype), data), jit_options(layout, donate=(), results=result)
