"""A decoder of any of the families in `shapes.decoders`: training step, forward pass, prefill, one decoding step.

FSDP x tensor parallel: weights are stored over "fsdp" and gathered layer by layer, heads and the feed-forward width
are split over "tensor", the batch over "data" and "fsdp", experts over "expert".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.decoder_arguments import cache_structs, stored_params, widened
from meshcast.zoo.layers import adapters, grouped_query, kv_cache, latent_attention
from meshcast.zoo.layers.attention import AttentionWord, positions
from meshcast.zoo.layers.experts import dense, gated_weights, routed, routed_weights, seen_by_router
from meshcast.zoo.layers.norms import norm_weights, normalised
from meshcast.zoo.layers.pieces import BATCH, Remat, cast, checkpointed, cross_entropy, embed, soft_cap, stacked
from meshcast.zoo.layers.saving import ATTENTION, kept
from meshcast.zoo.program import ModelProgram, adamw_program, jit_options, token_batch
from meshcast.zoo.sections import Sections
from meshcast.zoo.shapes.decoder import DecoderConfig, LayerStack
from meshcast.zoo.sharding import MeshLayout, ShardedWeight


def layout_of(
    config: DecoderConfig,
    mesh: Mapping[str, int] | None,
    *,
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    products: str = "plain",
    split_sequences: bool = False,
) -> MeshLayout:
    """The mesh; experts may be split only where there are some, sequences only where no cache grows with them."""
    split = (*(("expert",) if config.experts else ()), *(("context",) if split_sequences else ()))
    layout = MeshLayout.of(
        mesh,
        axes=("data", "fsdp", *split, "tensor"),
        sequence_parallel=sequence_parallel,
        attention=attention,
        products=products,
    )
    if config.experts:
        layout.require(config.experts, ("expert", "tensor") if config.whole_experts else "expert", "experts")
    return replace(layout, frozen=bool(config.lora))


def _layer_weights(config: DecoderConfig, stack: LayerStack) -> dict[str, ShardedWeight]:
    """The weights of one layer of a stack."""
    attention = latent_attention if config.latent_rank else grouped_query
    dense = gated_weights(config.dim, config.ffn, gate=config.gated, bias=config.ffn_bias)
    found = {**attention.attention_weights(config), **(routed_weights(config) if stack.routed else dense)}
    before = ("attention_norm", "ffn_norm")[: 1 if config.parallel_norms == 1 else 2] if config.pre_norms else ()
    after = ("attention_post_norm", "ffn_post_norm") if config.post_norms else ()
    for name in (*before, *after):
        found |= norm_weights(name, config.dim, config.norm)
    return found


def weights(config: DecoderConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis.

    A stack whose layers alternate (local, global) has one tree for each of them.
    """
    tree: dict[str, Any] = {"embedding": ShardedWeight((config.vocab, config.dim), ("tensor", "fsdp"))}
    for stack in config.stacks():
        each = [stacked(_layer_weights(config, stack), stack.count) for _ in stack.windows]
        tree[stack.name] = each[0] if len(each) == 1 else each
    tree |= norm_weights("norm", config.dim, config.norm)
    if config.embedding_norm:
        tree |= norm_weights("embedding_norm", config.dim, config.norm)
    if not config.tied:
        tree["head"] = ShardedWeight((config.dim, config.vocab), ("fsdp", "tensor"))
    return tree


def _each(tree: Any) -> list[Any]:
    """The trees of a stack's layers, one for every entry of its windows."""
    return tree if isinstance(tree, list) else [tree]


def layer(
    x: jax.Array, w: dict[str, jax.Array], place: kv_cache.CachePlace, cache: kv_cache.Cache | None,
    *, config: DecoderConfig, layout: MeshLayout, window: int, sparse: bool,
) -> tuple[jax.Array, kv_cache.Cache | None, jax.Array | None]:  # fmt: skip
    """One layer: activations, the cache after it, and the loss that balances its experts, where it has any."""

    def before(name: str, x: jax.Array) -> jax.Array:
        x = normalised(x, w, name, config.norm) if config.pre_norms else x
        return seen_by_router(x, config, layout) if sparse and name == "ffn_norm" else layout.whole(x)

    h = before("attention_norm", x)
    if config.latent_rank:
        y, cache = latent_attention.self_attention(h, w, place, cache, config=config, layout=layout)
    else:
        y, cache = grouped_query.self_attention(h, w, place, cache, config=config, layout=layout, window=window)
    y = _finished(y, w, "attention", config, layout)
    after = layout.constrain(kept(x + y, ATTENTION), *layout.residual)
    if config.parallel_norms != 1:
        h = before("ffn_norm", x if config.parallel_norms else after)
    x = after
    balance = None
    if sparse:
        y, balance = routed(h, w, config=config, layout=layout)
    else:
        y = dense(h, w, config=config, layout=layout)
    return x + _finished(y, w, "ffn", config, layout), cache, balance


def _finished(y: jax.Array, w: dict[str, jax.Array], half: str, config: DecoderConfig, layout: MeshLayout) -> jax.Array:
    """What a half adds to the activations: its bias and its norm after the sum over "tensor"."""
    y = layout.constrain(y, *layout.residual)
    y = y + w[name] if (name := f"{half}_out_bias") in w else y
    return normalised(kept(y), w, f"{half}_post_norm", config.norm) if config.post_norms else y


def hidden(
    params: dict[str, Any], tokens: jax.Array, positions: jax.Array, cache: dict[str, Any] | None,
    *, config: DecoderConfig, layout: MeshLayout, remat: Remat = "autodiff", past: int = 0,
) -> tuple[jax.Array, dict[str, Any] | None, list[jax.Array]]:  # fmt: skip
    """Activations (B, S, dim) after the last layer, the cache with their keys, and the balance losses of its stacks."""
    x = embedded(params, tokens, config, layout)
    return through_stacks(params, x, positions, cache, config=config, layout=layout, remat=remat, past=past)


def embedded(params: dict[str, Any], tokens: jax.Array, config: DecoderConfig, layout: MeshLayout) -> jax.Array:
    """Activations (B, S, dim) before the first layer."""
    x = embed(layout.gather(params["embedding"], weights(config)["embedding"]), tokens, layout)
    x = normalised(x, params, "embedding_norm", config.norm) if config.embedding_norm else x
    return layout.constrain(x * config.dim**0.5 if config.scaled_embedding else x, *layout.residual)


def through_stacks(
    params: dict[str, Any], x: jax.Array, positions: jax.Array, cache: dict[str, Any] | None,
    *, config: DecoderConfig, layout: MeshLayout, remat: Remat = "autodiff", past: int = 0,
) -> tuple[jax.Array, dict[str, Any] | None, list[jax.Array]]:  # fmt: skip
    """The layers of every stack: activations after them, the cache, and the balance losses."""
    kept: dict[str, Any] | None = None if cache is None else {}
    losses = []
    for stack in config.stacks():
        x, held, loss = _through(
            x, params[stack.name], cache and cache[stack.name], positions,
            stack=stack, config=config, layout=layout, remat=remat, past=past,
        )  # fmt: skip
        losses += [] if loss is None else [loss]
        if kept is not None:
            kept[stack.name] = held
    return x, kept, losses


def _through(
    x: jax.Array, values: Any, cache: Any, positions: jax.Array,
    *, stack: LayerStack, config: DecoderConfig, layout: MeshLayout, remat: Remat, past: int,
) -> tuple[jax.Array, Any, jax.Array | None]:  # fmt: skip
    """One stack: its scan carries the activations and the stack's whole cache, so that it is updated in place."""
    # What a layer does not depend on is left out: parts of a pipeline have their layers in common.
    each = replace(config, layers=1, dense_layers=0, recomputed=0)
    layers = _layers(stack.windows, stack.routed, each, layout, stack.remat(remat), past)
    caches = [None] * len(stack.windows) if cache is None else _each(cache)
    if not config.scan:
        alone = jax.tree.map(lambda value: value.reshape(value.shape[1:]), _each(values))
        # Traced and lowered once for all layers that are alike.
        (x, caches), losses = jax.jit(layers)((x, caches), (None, alone), positions)
        return x, None if cache is None else caches, jnp.stack(losses) if losses else None
    walked = (None if cache is None else jnp.arange(stack.count), _each(values))
    (x, caches), losses = jax.lax.scan(partial(layers, positions=positions), (x, caches), walked)
    return x, None if cache is None else caches, jnp.concatenate(losses) if losses else None


@lru_cache(maxsize=64)
def _layers(
    windows: tuple[int, ...], is_routed: bool, config: DecoderConfig, layout: MeshLayout, remat: Remat, past: int
) -> Callable[..., tuple[Any, list[jax.Array]]]:
    """One turn of a stack's scan: a layer for each window. Equal questions have the very same answer."""
    tree = _layer_weights(config, LayerStack(name="", count=1, windows=windows, routed=is_routed))

    def body(carry: Any, xs: Any, positions: jax.Array) -> tuple[Any, list[jax.Array]]:
        x, caches = carry
        index, layers = xs
        place = kv_cache.CachePlace(positions=positions, layer=0 if index is None else index, past=past)
        losses = []
        caches = list(caches)
        for slot, (w, window) in enumerate(zip(layers, windows, strict=True)):
            x, caches[slot], loss = one(x, w, place, caches[slot], window)
            losses += [] if loss is None else [loss]
        return (x, caches), losses

    def one(x: jax.Array, w: Any, place: kv_cache.CachePlace, cache: Any, window: int) -> Any:
        def run(x: jax.Array, w: Any, positions: jax.Array) -> Any:
            seen, w = replace(place, positions=positions), widened(layout.gather(w, tree), x.dtype)
            return layer(x, w, seen, cache, config=config, layout=layout, window=window, sparse=is_routed)

        # A layer is what keeps its input and computes the rest again, however many of them a turn has.
        return (checkpointed(run, remat, layout) if len(windows) > 1 else run)(x, w, place.positions)

    return body if len(windows) > 1 else checkpointed(body, remat, layout)


def project_out(x: jax.Array, params: dict[str, Any], config: DecoderConfig, layout: MeshLayout) -> jax.Array:
    """Logits (B, S, vocabulary split over "tensor"), in the compute dtype so that its backward products are too."""
    name, equation = ("embedding", "bsd,vd->bsv") if config.tied else ("head", "bsd,dv->bsv")
    table = layout.gather(params[name], weights(config)[name])
    x = layout.whole(normalised(x, params, "norm", config.norm))
    logits = layout.constrain(jnp.einsum(equation, x, table), BATCH, "context", "tensor")
    return soft_cap(logits, config.logit_cap)


def train_step(
    config: DecoderConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "full",
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
    gradient_dtype: DTypeLike = "float32",
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`.

    With `sequence_parallel` the residual stream is split by position over "tensor".
    """
    layout = layout_of(
        config, mesh, sequence_parallel=sequence_parallel, attention=attention, products=products, split_sequences=True
    )

    def loss(params: Any, batch: Any) -> jax.Array:
        params = cast(params, compute_dtype)
        x, _, balance = hidden(
            params, batch["tokens"], positions(seq, layout), None,
            config=config, layout=layout, remat=remat,
        )  # fmt: skip
        value = cross_entropy(project_out(x, params, config, layout), batch["targets"])
        return value + config.balance * jnp.mean(jnp.concatenate(balance)) if balance else value

    params = _params(config, layout, param_dtype)
    if config.lora:
        # What is not trained is kept in the type that it is multiplied in.
        trained, _ = adapters.parted(params)
        params = adapters.joined(trained, adapters.parted(_params(config, layout, compute_dtype))[1])
    data = token_batch(layout, batch, seq, accumulate=accumulate)
    return adamw_program(
        layout, loss, params, data, accumulate=accumulate, zero=zero, gradient_dtype=gradient_dtype,
        adapters_only=config.lora > 0,
    )  # fmt: skip


def sections(
    config: DecoderConfig,
    *,
    first: int,
    layers: int,
    mesh: Mapping[str, int] | None = None,
    seq: int = 2048,
    remat: Remat = "full",
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    products: str = "plain",
) -> Sections:
    """The model's two ends, and its layers from `first` on, for a pipeline to cut between them."""
    layout = layout_of(
        config, mesh, sequence_parallel=sequence_parallel, attention=attention, products=products, split_sequences=True
    )
    if not config.latent_rank:
        grouped_query.key_copies(config, layout)
    part, tree = config.part(first, layers), weights(config)
    head = "embedding" if config.tied else "head"

    def through(params: Any, x: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        x, _, balance = through_stacks(params, x, positions(seq, layout), None, config=part, layout=layout, remat=remat)
        share = (part.layers - part.dense_layers) / (config.layers - config.dense_layers)  # of the mean over all layers
        return x, config.balance * share * jnp.mean(jnp.concatenate(balance)) if balance else None

    def loss(params: Any, x: jax.Array, batch: Any) -> jax.Array:
        return cross_entropy(project_out(x, params, config, layout), batch["targets"])

    return Sections(
        layout=layout,
        entry={name: weight for name, weight in tree.items() if name.startswith("embedding")},
        layers={stack.name: weights(part)[stack.name] for stack in part.stacks()},
        exit={name: tree[name] for name in ("norm", "norm_bias", head) if name in tree},
        embed=lambda params, batch: embedded(params, batch["tokens"], config, layout),
        through=through,
        loss=loss,
        width=config.dim,
        length=seq,
        adapters_only=config.lora > 0,
    )


def _serving(config: DecoderConfig) -> DecoderConfig:
    """The configuration without what only training needs: no loss balances its experts."""
    return replace(config, balance=0.0)


def _params(config: DecoderConfig, layout: MeshLayout, dtype: DTypeLike, narrow: str = "") -> Any:
    if not config.latent_rank:
        grouped_query.key_copies(config, layout)  # names the heads that the mesh does not divide
    return stored_params(weights(config), config, layout, dtype, narrow)


def forward(
    config: DecoderConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position, nothing kept."""
    config = _serving(config)
    layout = layout_of(config, mesh, sequence_parallel=sequence_parallel, attention=attention)

    def forward(params: Any, batch: Any) -> jax.Array:
        x, _, _ = hidden(params, batch["tokens"], jnp.arange(seq), None, config=config, layout=layout)
        return project_out(x, params, config, layout)

    params = _params(config, layout, param_dtype)
    data = {"tokens": layout.struct((batch, seq), jnp.int32, BATCH, None)}
    result = layout.struct((batch, seq, config.vocab), param_dtype, BATCH, None, "tensor")
    return forward, (params, data), jit_options(layout, donate=(), results=result)


def prefill(
    config: DecoderConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    context: int | None = None,
    past: int = 0,
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
    weight_dtype: str = "",
) -> ModelProgram:
    """A prompt of `seq` tokens: `(params, cache, batch) -> (cache, next tokens)`, the cache filled in place.

    The cache has room for `context` positions, the prompt's length by default. With `past` the tokens are a chunk of the
    prompt, behind so many that the cache has already.
    """
    length = past + seq if context is None else context
    kv_cache.check_room(seq, length, past)
    config = _serving(config)
    layout = layout_of(config, mesh, sequence_parallel=sequence_parallel, attention=attention)

    def prefill(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        at = past + jnp.arange(seq)
        x, cache, _ = hidden(params, batch["tokens"], at, cache, config=config, layout=layout, past=past)
        return cache, _sampled(x[:, -1:], params, config, layout)

    cache = cache_structs(config, layout, batch, length, param_dtype)
    data = {"tokens": layout.struct((batch, seq), jnp.int32, BATCH, None)}
    return _cached_program(prefill, _params(config, layout, param_dtype, weight_dtype), layout, cache, data)


def decode_step(
    config: DecoderConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    context: int = 2048,
    param_dtype: DTypeLike = "bfloat16",
    weight_dtype: str = "",
) -> ModelProgram:
    """One token for every sequence: `(params, cache, batch) -> (cache, next tokens)`, the cache updated in place."""
    config = _serving(config)
    layout = layout_of(config, mesh)

    def decode_step(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        tokens, positions = batch["tokens"][:, None], batch["position"][None]
        x, cache, _ = hidden(params, tokens, positions, cache, config=config, layout=layout)
        return cache, _sampled(x, params, config, layout)

    cache = cache_structs(config, layout, batch, context, param_dtype)
    data = {"tokens": layout.struct((batch,), jnp.int32, BATCH), "position": layout.struct((), jnp.int32)}
    return _cached_program(decode_step, _params(config, layout, param_dtype, weight_dtype), layout, cache, data)


def _sampled(x: jax.Array, params: Any, config: DecoderConfig, layout: MeshLayout) -> jax.Array:
    """The likeliest token after each sequence, of its last activations (B, 1, dim)."""
    return jnp.argmax(project_out(x, params, config, layout)[:, 0], axis=-1).astype(jnp.int32)


def _cached_program(function: Any, params: Any, layout: MeshLayout, cache: Any, data: Any) -> ModelProgram:
    tokens = layout.struct(data["tokens"].shape[:1], jnp.int32, BATCH)
    return function, (params, cache, data), jit_options(layout, donate=(1,), results=(cache, tokens))
