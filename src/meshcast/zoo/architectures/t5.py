"""T5 (Raffel 2020): an encoder-decoder with relative positions, without biases; data, FSDP and tensor-parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import Fields, forward_program, layout_for_heads, supervised_program
from meshcast.zoo.layers import kv_cache
from meshcast.zoo.layers.blocks import through_layers
from meshcast.zoo.layers.experts import gated, gated_weights
from meshcast.zoo.layers.pieces import BATCH, Remat, causal_mask, embed, one_layer, rms_norm, stacked
from meshcast.zoo.program import ModelProgram, jit_options
from meshcast.zoo.shapes.t5 import T5Config
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")
_FAR = 128
"""Distances beyond which all share a bucket (Raffel 2020, section 2.1)."""


def _attention_weights(config: T5Config, prefix: str) -> dict[str, ShardedWeight]:
    width = config.heads * config.head_dim
    return {
        f"{prefix}norm": ShardedWeight((config.dim,)),
        **{f"{prefix}w{name}": ShardedWeight((config.dim, width), ("fsdp", "tensor")) for name in "qkv"},
        f"{prefix}wo": ShardedWeight((width, config.dim), ("tensor", "fsdp")),
    }


def _layer_weights(config: T5Config, *, crossed: bool) -> dict[str, ShardedWeight]:
    found = _attention_weights(config, "self_") | {"ffn_norm": ShardedWeight((config.dim,))}
    found |= gated_weights(config.dim, config.ffn)
    if not config.gated:
        del found["gate"]
    return found | (_attention_weights(config, "cross_") if crossed else {})


def weights(config: T5Config) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis."""
    tree: dict[str, Any] = {"embedding": ShardedWeight((config.vocab, config.dim), ("tensor", "fsdp"))}
    for name, layers in (("encoder", config.layers), ("decoder", config.decoder_layers or config.layers)):
        tree[name] = {
            "layers": stacked(_layer_weights(config, crossed=name == "decoder"), layers),
            "distances": ShardedWeight((config.buckets, config.heads), (None, "tensor")),
            "norm": ShardedWeight((config.dim,)),
        }
    if not config.tied:
        tree["head"] = ShardedWeight((config.dim, config.vocab), ("fsdp", "tensor"))
    return tree


def distance_buckets(positions: jax.Array, length: int, buckets: int, *, both_ways: bool) -> jax.Array:
    """The bucket of every pair of a position (S,) and one of `length` (T): exact when near, logarithmic when far.

    In the encoder one half of them is for each way.
    """
    distance = jnp.arange(length)[None, :] - positions[:, None]
    offset = jnp.zeros_like(distance)
    if both_ways:
        buckets //= 2
        offset = buckets * (distance > 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(-distance, 0)
    near = buckets // 2
    ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / near) / jnp.log(_FAR / near)
    far = jnp.minimum(near + (ratio * (buckets - near)).astype(jnp.int32), buckets - 1)
    return offset + jnp.where(distance < near, distance, far)


def heads_of(h: jax.Array, w: dict[str, jax.Array], name: str, *, config: T5Config, layout: MeshLayout) -> jax.Array:
    """A projection of activations to heads (B, S, H, D)."""
    h = (h @ w[name]).reshape(*h.shape[:2], config.heads, config.head_dim)
    return layout.constrain(h, BATCH, None, "tensor", None)


def attend(
    x: jax.Array, keys: tuple[jax.Array, jax.Array], w: dict[str, jax.Array], prefix: str, bias: jax.Array | None,
    *, config: T5Config, layout: MeshLayout, heads_first: bool = False,
) -> jax.Array:  # fmt: skip
    """Attention of x (B, S, dim) over keys and values (B, T, H, D), scores without a scale, plus a bias (H, S, T).

    With `heads_first` keys and values lie as a cache keeps them, (B, H, T, D).
    """
    places = "bhtd" if heads_first else "bthd"
    q, (k, v) = heads_of(x, w, f"{prefix}wq", config=config, layout=layout), keys
    scores = jnp.einsum(f"bshd,{places}->bhst", q, k).astype(jnp.float32)
    scores = scores if bias is None else scores + bias
    shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    y = jnp.einsum(f"bhst,{places}->bshd", shares, v).reshape(*x.shape[:2], -1)
    return layout.constrain(y, BATCH, None, "tensor") @ w[f"{prefix}wo"]


def feed_forward(h: jax.Array, w: dict[str, jax.Array], *, config: T5Config, layout: MeshLayout) -> jax.Array:
    """ReLU between two products, or gated GELU."""
    if config.gated:
        return gated(h, w, activation="gelu", layout=layout)
    return layout.constrain(jax.nn.relu(h @ w["up"]), BATCH, None, "tensor") @ w["down"]


def stack(
    params: Any, tokens: jax.Array, name: str, memory: jax.Array | None,
    *, config: T5Config, layout: MeshLayout, remat: Remat,
) -> jax.Array:  # fmt: skip
    """The encoder, or the decoder over the encoder's output (B, T, dim)."""
    tree, side = weights(config), params[name]
    x = embed(layout.gather(params["embedding"], tree["embedding"]), tokens, layout)
    x = layout.constrain(x, BATCH, None, None)
    length = tokens.shape[1]
    bias = distance_bias(side, jnp.arange(length), length, config, both_ways=memory is None)
    bias = bias if memory is None else jnp.where(causal_mask(length), bias, jnp.float32(-1e30))

    def body(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        def keys(source: jax.Array, half: str) -> tuple[jax.Array, jax.Array]:
            k, v = (heads_of(source, w, f"{half}_w{name}", config=config, layout=layout) for name in "kv")
            return k, v

        across = None if memory is None else partial(keys, memory, "cross")
        return layer(x, w, partial(keys, half="self"), bias, across, config=config, layout=layout)

    x = through_layers(body, x, side["layers"], tree[name]["layers"], remat=remat, layout=layout)
    return normalised(x, side["norm"], layout)


def normalised(x: jax.Array, scale: jax.Array, layout: MeshLayout) -> jax.Array:
    """Normalised activations, whole on every device of "tensor"."""
    return layout.constrain(rms_norm(x, scale), BATCH, None, None)


def distance_bias(side: Any, positions: jax.Array, length: int, config: T5Config, *, both_ways: bool) -> jax.Array:
    """The bias that distances add to scores: (H, S, T) for positions (S,) and `length` others."""
    near = distance_buckets(positions, length, config.buckets, both_ways=both_ways)
    return jnp.take(side["distances"], near, axis=0, mode="clip").transpose(2, 0, 1).astype(jnp.float32)


Keys = tuple[jax.Array, jax.Array]


def layer(
    x: jax.Array, w: dict[str, jax.Array], own: Callable[[jax.Array], Keys], bias: jax.Array,
    across: Callable[[], Keys] | None, *, config: T5Config, layout: MeshLayout, heads_first: bool = False,
) -> jax.Array:  # fmt: skip
    """One layer over its own keys and values, given normalised activations, and over those `across` from the encoder."""

    def summed(x: jax.Array, y: jax.Array) -> jax.Array:
        return layout.constrain(x + y, BATCH, None, None)

    h = normalised(x, w["self_norm"], layout)
    x = summed(x, attend(h, own(h), w, "self_", bias, config=config, layout=layout, heads_first=heads_first))
    if across is not None:
        h = normalised(x, w["cross_norm"], layout)
        x = summed(x, attend(h, across(), w, "cross_", None, config=config, layout=layout, heads_first=heads_first))
    return summed(x, feed_forward(normalised(x, w["ffn_norm"], layout), w, config=config, layout=layout))


def logits(params: Any, data: Any, *, config: T5Config, layout: MeshLayout, remat: Remat) -> jax.Array:
    """Logits (B, S, vocabulary) of every position of the output."""
    memory = stack(params, data["inputs"], "encoder", None, config=config, layout=layout, remat=remat)
    x = stack(params, data["tokens"], "decoder", memory, config=config, layout=layout, remat=remat)
    return project_out(x, params, config, layout)


def project_out(x: jax.Array, params: Any, config: T5Config, layout: MeshLayout) -> jax.Array:
    """Logits (B, S, vocabulary) of the decoder's activations."""
    name, equation = ("embedding", "bsd,vd->bsv") if config.tied else ("head", "bsd,dv->bsv")
    x = x * config.dim**-0.5 if config.tied else x
    table = layout.gather(params[name], weights(config)[name])
    return layout.constrain(jnp.einsum(equation, x, table), BATCH, None, "tensor")


def train_step(
    config: T5Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int = 512,
    target: int = 114,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "autodiff",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step on inputs of `seq` and outputs of `target` tokens (114: spans of 15 % of 512, as pretrained)."""
    layout = layout_for_heads(mesh, AXES, config.heads)
    score = partial(logits, config=config, layout=layout, remat=remat)
    rows, outputs = ((batch, seq), jnp.int32), ((batch, target), jnp.int32)
    fields: Fields = {"inputs": rows, "tokens": outputs, "targets": outputs}
    return supervised_program(
        layout, weights(config), score, fields, labels="targets",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: T5Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int = 512,
    target: int = 114,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position of the output."""
    layout = layout_for_heads(mesh, AXES, config.heads)
    score = partial(logits, config=config, layout=layout, remat="autodiff")
    fields: Fields = {"inputs": ((batch, seq), jnp.int32), "tokens": ((batch, target), jnp.int32)}
    result = layout.struct((batch, target, config.vocab), param_dtype, BATCH, None, "tensor")
    return forward_program(layout, weights(config), score, fields, result, param_dtype=param_dtype)


def prefill(
    config: T5Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int = 512,
    target: int = 114,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Inputs of `seq` tokens to the first of the output: `(params, cache, batch) -> (cache, first tokens)`.

    The encoder's keys and values are computed for every layer of the decoder once, and its first step is taken. The cache
    has room for `target` tokens of output.
    """
    layout = layout_for_heads(mesh, AXES, config.heads)
    tree = one_layer(weights(config)["decoder"]["layers"])

    def prefill(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        memory = stack(params, batch["inputs"], "encoder", None, config=config, layout=layout, remat="autodiff")

        def across(_: None, w: Any) -> tuple[None, Any]:
            w = layout.gather(w, tree)
            k, v = (heads_of(memory, w, f"cross_w{name}", config=config, layout=layout) for name in "kv")
            return None, {"cross_k": kv_cache.heads_first(k), "cross_v": kv_cache.heads_first(v)}

        _, crossed = jax.lax.scan(across, None, params["decoder"]["layers"])
        crossed = {name: held.astype(cache[name].dtype) for name, held in crossed.items()}
        start = jnp.zeros((batch["inputs"].shape[0], 1), jnp.int32)  # the padding token begins every output
        return _step(params, cache | crossed, start, jnp.zeros((1,), jnp.int32), config=config, layout=layout)

    data = {"inputs": layout.struct((batch, seq), jnp.int32, BATCH)}
    return _cached_program(prefill, config, layout, data, (batch, seq, target), param_dtype)


def decode_step(
    config: T5Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int = 512,
    target: int = 114,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One token of output for every input of `seq` tokens: `(params, cache, batch) -> (cache, next tokens)`."""
    layout = layout_for_heads(mesh, AXES, config.heads)

    def decode_step(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        tokens, positions = batch["tokens"][:, None], batch["position"][None]
        return _step(params, cache, tokens, positions, config=config, layout=layout)

    data = {"tokens": layout.struct((batch,), jnp.int32, BATCH), "position": layout.struct((), jnp.int32)}
    return _cached_program(decode_step, config, layout, data, (batch, seq, target), param_dtype)


def _step(
    params: Any, cache: Any, tokens: jax.Array, positions: jax.Array, *, config: T5Config, layout: MeshLayout
) -> tuple[Any, jax.Array]:
    """One position of the decoder: the cache with it, and the likeliest token after it."""
    tree, side = weights(config), params["decoder"]
    x = embed(layout.gather(params["embedding"], tree["embedding"]), tokens, layout)
    length = cache["k"].shape[-2]
    bias = distance_bias(side, positions, length, config, both_ways=False)

    def body(carry: Any, xs: Any) -> tuple[Any, None]:
        (x, held), (index, w, crossed) = carry, xs
        w = layout.gather(w, one_layer(tree["decoder"]["layers"]))
        place = kv_cache.CachePlace(positions=positions, layer=index)
        updated = {}

        def own(h: jax.Array) -> Keys:
            made = {name: heads_of(h, w, f"self_w{name}", config=config, layout=layout) for name in "kv"}
            new = {name: kv_cache.heads_first(values) for name, values in made.items()}
            updated.update(kv_cache.append(held, new, place))
            seen = kv_cache.of_layer(updated, place)
            return seen["k"], seen["v"]

        masked = jnp.where(kv_cache.visible(length, place), bias, jnp.float32(-1e30))
        across = partial(lambda c: (c["cross_k"], c["cross_v"]), crossed)
        x = layer(x, w, own, masked, across, config=config, layout=layout, heads_first=True)
        return (x, updated), None

    crossed = {name: cache[name] for name in ("cross_k", "cross_v")}
    layers = (jnp.arange(config.decoder_layers or config.layers), side["layers"], crossed)
    x = layout.constrain(x, BATCH, None, None)
    (x, held), _ = jax.lax.scan(body, (x, {name: cache[name] for name in "kv"}), layers)
    scores = project_out(normalised(x, side["norm"], layout), params, config, layout)
    return held | crossed, jnp.argmax(scores[:, 0], axis=-1).astype(jnp.int32)


def _cached_program(
    function: Any, config: T5Config, layout: MeshLayout, data: Any, sizes: tuple[int, int, int], dtype: DTypeLike
) -> ModelProgram:
    """A program over the keys and values of the output so far, and of the inputs, in every layer of the decoder."""
    batch, seq, target = sizes

    def entry(length: int) -> jax.ShapeDtypeStruct:
        shape = (batch, config.heads, length, config.head_dim)
        held = kv_cache.Entry(shape=shape, axes=(BATCH, "tensor", None, None))
        return held.struct(config.decoder_layers or config.layers, layout, dtype)

    cache = {"k": entry(target), "v": entry(target), "cross_k": entry(seq), "cross_v": entry(seq)}
    tokens = layout.struct((batch,), jnp.int32, BATCH)
    args = (layout.params(weights(config), dtype), cache, data)
    return function, args, jit_options(layout, donate=(1,), results=(cache, tokens))
