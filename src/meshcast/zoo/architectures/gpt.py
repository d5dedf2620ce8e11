"""GPT (Radford 2019): learned positions, layer norms, biases; training step, forward pass, prefill, decoding step.

Data and FSDP parallel, and Megatron-style tensor parallelism; a scan over layers, or unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.layers import kv_cache
from meshcast.zoo.layers.attention import AttentionWord, attend, is_reordered, positions
from meshcast.zoo.layers.blocks import Attend, block, block_weights, through_layers
from meshcast.zoo.layers.pieces import (
    BATCH,
    Remat,
    cast,
    cross_entropy,
    embed,
    layer_norm,
    one_layer,
    stacked,
)
from meshcast.zoo.layers.pieces import attention as cached_attention
from meshcast.zoo.program import ModelProgram, adamw_program, jit_options, token_batch
from meshcast.zoo.sections import Sections
from meshcast.zoo.shapes.gpt import GptConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")
TRAINING_AXES = ("data", "fsdp", "context", "tensor")


def weights(config: GptConfig, layout: MeshLayout | None = None, *, scan: bool = True) -> dict[str, Any]:
    """Every parameter's shape and storage; layers are stacked for a scan, separate where unrolled.

    Over "tensor" the vocabulary is padded to a multiple of 128 per shard, as Megatron pads it: 50257 is odd.
    """
    layout = layout or MeshLayout()
    layout.require(config.heads, "tensor", "attention heads")
    shards = layout.size("tensor")
    vocab = config.vocab if shards == 1 else -(-config.vocab // (128 * shards)) * 128 * shards
    layer = block_weights(config.dim, config.hidden)
    narrow = config.embedding_dim
    norm = {} if config.post_norm else {name: ShardedWeight((config.dim,)) for name in ("norm_scale", "norm_bias")}
    widths = (
        {"widen": ShardedWeight((narrow, config.dim)), "narrow": ShardedWeight((config.dim, narrow))} if narrow else {}
    )
    return {
        "tokens": _table((vocab, narrow or config.dim)),
        "positions": ShardedWeight((config.positions, config.dim)),
        "layers": stacked(layer, config.layers) if scan else [layer] * config.layers,
        **norm,
        **widths,
    }


def _table(shape: tuple[int, ...]) -> ShardedWeight:
    """The embedding, which is stored over "fsdp" like any other weight."""
    return ShardedWeight(shape, ("tensor", "fsdp"))


def _gathered(params: Any, layout: MeshLayout) -> jax.Array:
    table: jax.Array = layout.gather(params["tokens"], _table(params["tokens"].shape))
    return table


def _length(config: GptConfig, seq: int | None) -> int:
    """The sequence asked for, the longest by default."""
    length = config.positions if seq is None else seq
    if length > config.positions:
        raise UsageError(
            f"seq={length} is longer than the model's {config.positions} positions",
            where="--set",
            fix=f"set positions={length} too",
        )
    return length


def _positions(params: Any, length: int, layout: MeshLayout) -> jax.Array:
    """The learned vectors of a sequence's positions, in the order that they are stored."""
    table = params["positions"][:length]
    return jnp.take(table, positions(length, layout), axis=0, mode="clip") if is_reordered(layout) else table


def _embedded(params: Any, tokens: jax.Array, positions: jax.Array, layout: MeshLayout) -> jax.Array:
    x = embed(_gathered(params, layout), tokens, layout)
    x = x @ params["widen"] if "widen" in params else x
    return layout.constrain(x, *layout.residual) + positions


def _logits(x: jax.Array, params: Any, layout: MeshLayout) -> jax.Array:
    x = layer_norm(x, params["norm_scale"], params["norm_bias"]) if "norm_scale" in params else x
    x = layout.whole(x)
    x = x @ params["narrow"] if "narrow" in params else x
    return layout.constrain(jnp.einsum("bsd,vd->bsv", x, _gathered(params, layout)), BATCH, "context", "tensor")


def _block(x: jax.Array, w: Any, *, config: GptConfig, layout: MeshLayout, attend: Attend) -> jax.Array:
    return block(
        x, w, layout=layout, heads=config.heads, attend=attend, activation=config.activation, post_norm=config.post_norm
    )


def logits(
    params: Any, tokens: jax.Array, tree: dict[str, Any], *, config: GptConfig, layout: MeshLayout, remat: Remat
) -> jax.Array:
    """Logits (B, S, vocabulary) of every position."""
    step = _training_block(layout, config.heads, config.activation, config.post_norm)
    x = _embedded(params, tokens, _positions(params, tokens.shape[1], layout), layout)
    x = through_layers(step, x, params["layers"], tree["layers"], remat=remat, layout=layout, marks=True)
    return _logits(x, params, layout)


def train_step(
    config: GptConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int | None = None,
    accumulate: int = 1,
    zero: int = 0,
    scan: bool = True,
    remat: Remat = "autodiff",
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
    gradient_dtype: DTypeLike = "float32",
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`; `seq` defaults to the longest."""
    layout = MeshLayout.of(
        mesh, axes=TRAINING_AXES, sequence_parallel=sequence_parallel, attention=attention, products=products
    )
    length, tree = _length(config, seq), weights(config, layout, scan=scan)

    def loss(params: Any, batch: Any) -> jax.Array:
        params = cast(params, compute_dtype)
        predicted = logits(params, batch["tokens"], tree, config=config, layout=layout, remat=remat)
        return cross_entropy(predicted, batch["targets"])

    data = token_batch(layout, batch, length, accumulate=accumulate)
    params = layout.params(tree, param_dtype)
    return adamw_program(layout, loss, params, data, accumulate=accumulate, zero=zero, gradient_dtype=gradient_dtype)


def sections(
    config: GptConfig,
    *,
    first: int,
    layers: int,
    mesh: Mapping[str, int] | None = None,
    seq: int | None = None,
    remat: Remat = "autodiff",
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    products: str = "plain",
) -> Sections:
    """The model's two ends, and its layers from `first` on, for a pipeline to cut between them.

    The last part has an output projection of its own, a copy of the embedding as Megatron has it.
    """
    layout = MeshLayout.of(
        mesh, axes=TRAINING_AXES, sequence_parallel=sequence_parallel, attention=attention, products=products
    )
    length, tree = _length(config, seq), weights(replace(config, layers=layers), layout)
    step = _training_block(layout, config.heads, config.activation, config.post_norm)

    def through(params: Any, x: jax.Array) -> tuple[jax.Array, None]:
        return through_layers(
            step, x, params, tree["layers"], remat=remat, layout=layout, marks=True
        ) if layers else x, None

    return Sections(
        layout=layout,
        entry={name: tree[name] for name in ("tokens", "positions", "widen") if name in tree},
        layers=tree["layers"] if layers else {},
        exit={name: tree[name] for name in ("norm_scale", "norm_bias", "narrow", "tokens") if name in tree},
        embed=lambda params, batch: _embedded(params, batch["tokens"], _positions(params, length, layout), layout),
        through=through,
        loss=lambda params, x, batch: cross_entropy(_logits(x, params, layout), batch["targets"]),
        width=config.dim,
        length=length,
    )


@lru_cache(maxsize=64)
def _training_block(
    layout: MeshLayout, heads: int, activation: str, post_norm: bool
) -> Callable[[jax.Array, Any], jax.Array]:
    """A layer of a training step; equal questions have the very same answer, so that parts share their tracing."""
    attending = partial(attend, layout=layout)
    return partial(block, layout=layout, heads=heads, attend=attending, activation=activation, post_norm=post_norm)


def forward(
    config: GptConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int | None = None,
    scan: bool = True,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position."""
    layout = MeshLayout.of(mesh, axes=AXES, attention=attention)
    length, tree = _length(config, seq), weights(config, layout, scan=scan)

    def forward(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["tokens"], tree, config=config, layout=layout, remat="autodiff")

    data = {"tokens": layout.struct((batch, length), jnp.int32, BATCH, None)}
    result = layout.struct((batch, length, tree["tokens"].shape[0]), param_dtype, BATCH, None, "tensor")
    return forward, (layout.params(tree, param_dtype), data), jit_options(layout, donate=(), results=result)


def _cached(
    params: Any,
    cache: Any,
    tokens: jax.Array,
    positions: jax.Array,
    past: int = 0,
    *,
    config: GptConfig,
    layout: MeshLayout,
    tree: Any,
) -> tuple[Any, jax.Array]:
    """The cache with new positions, and the likeliest token after the last of them."""
    unrolled = isinstance(tree["layers"], list)
    weight = tree["layers"][0] if unrolled else one_layer(tree["layers"])

    def body(carry: Any, xs: Any) -> tuple[Any, None]:
        (x, held), (index, w) = carry, xs
        place = kv_cache.CachePlace(positions=positions, layer=index, past=past)
        updated = {}

        def attended(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            new = {"k": kv_cache.heads_first(k), "v": kv_cache.heads_first(v)}
            updated.update(kv_cache.append(held, new, place))
            if past:
                earlier = kv_cache.before(held, place)
                k, v = (kv_cache.heads_first(jnp.concatenate([earlier[n], new[n]], axis=-2)) for n in ("k", "v"))
            if q.shape[1] > 1:
                return attend(q, k, v, layout=layout)
            seen = kv_cache.of_layer(updated, place)
            mask = kv_cache.visible(seen["k"].shape[-2], place)
            return cached_attention(q, seen["k"], seen["v"], mask, heads_first=True)

        x = _block(x, layout.gather(w, weight), config=config, layout=layout, attend=attended)
        return (x, updated), None

    x = _embedded(params, tokens, jnp.take(params["positions"], positions, axis=0, mode="clip"), layout)
    x, cache = kv_cache.through_layers(body, x, cache, params["layers"])
    return cache, jnp.argmax(_logits(x[:, -1:], params, layout)[:, 0], axis=-1).astype(jnp.int32)


def prefill(
    config: GptConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int | None = None,
    context: int | None = None,
    past: int = 0,
    scan: bool = False,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """A prompt of `seq` tokens: `(params, cache, batch) -> (cache, next tokens)`, the cache filled in place.

    With `past` they are a chunk of it, behind so many that the cache has already.
    """
    length = _length(config, seq)
    room = _length(config, context) if context is not None else _length(config, past + length)
    kv_cache.check_room(length, room, past)
    return _serving(config, mesh, batch, room, param_dtype, prompt=length, past=past, scan=scan, attention=attention)


def decode_step(
    config: GptConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    context: int | None = None,
    scan: bool = False,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One token for every sequence: `(params, cache, batch) -> (cache, next tokens)`, the cache updated in place."""
    return _serving(config, mesh, batch, _length(config, context), param_dtype, prompt=None, scan=scan)


def _serving(
    config: GptConfig,
    mesh: Mapping[str, int] | None,
    batch: int,
    room: int,
    dtype: DTypeLike,
    *,
    prompt: int | None,
    scan: bool,
    past: int = 0,
    attention: AttentionWord = "auto",
) -> ModelProgram:
    """The program of a prompt, or of a single step, over a cache of `room` positions."""
    layout = MeshLayout.of(mesh, axes=AXES, attention=attention)
    tree = weights(config, layout, scan=scan)
    entry = kv_cache.Entry(
        shape=(batch, config.heads, room, config.dim // config.heads), axes=(BATCH, "tensor", None, None)
    )
    cache = kv_cache.structs({"k": entry, "v": entry}, config.layers, layout, dtype, scan=scan)
    step = partial(_cached, config=config, layout=layout, tree=tree)

    def prefill(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        return step(params, cache, batch["tokens"], past + jnp.arange(batch["tokens"].shape[1]), past)

    def decode_step(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        return step(params, cache, batch["tokens"][:, None], batch["position"][None])

    tokens = layout.struct((batch,), jnp.int32, BATCH)
    options = jit_options(layout, donate=(1,), results=(cache, tokens))
    params = layout.params(tree, dtype)
    if prompt is None:
        return decode_step, (params, cache, {"tokens": tokens, "position": layout.struct((), jnp.int32)}), options
    return prefill, (params, cache, {"tokens": layout.struct((batch, prompt), jnp.int32, BATCH)}), options
