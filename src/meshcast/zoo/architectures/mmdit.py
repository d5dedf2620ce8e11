"""Transformers over pictures and texts together (Esser 2024; FLUX.1), trained by flow matching; data, FSDP, tensor-parallel.

In a joint layer both streams have weights of their own, and attend as one sequence, the text first; in a single layer behind them
both are one stream, whose attention and feed-forward half read the same norm and are added at once. What time and the
whole text come to scales and shifts every norm. Latents and the text's tokens come in as they are: whatever encodes them is
run before training, as MLPerf's reference has it. Positions turn queries and keys by one angle, which costs what three axes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.dit import modulated
from meshcast.zoo.frame import Fields, forward_program
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.blocks import feed_forward, through_layers
from meshcast.zoo.layers.diffusion import embed_time, time_weights
from meshcast.zoo.layers.modulated import half_weights, heads_of, merged
from meshcast.zoo.layers.pieces import BATCH, Remat, cast, rms_norm, rotary, stacked
from meshcast.zoo.layers.saving import kept
from meshcast.zoo.program import ModelProgram, adamw_program, microbatched
from meshcast.zoo.shapes.mmdit import MmditConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")
_THETA = 1e4


def weights(config: MmditConfig) -> dict[str, Any]:
    """Every parameter's shape and storage."""
    dim, vector = config.dim, time_weights(config.frequencies, config.dim)
    stream = half_weights(dim, config.heads, 4 * dim) | _modulation(dim, 6)
    single = half_weights(dim, config.heads, 4 * dim) | _modulation(dim, 3)
    # Both halves of a single layer are one product with one bias.
    del single["b2"]
    found: dict[str, Any] = {
        "patch": ShardedWeight((config.numbers, dim)),
        "patch_bias": ShardedWeight((dim,)),
        "words": ShardedWeight((config.context, dim), (None, "fsdp")),
        "words_bias": ShardedWeight((dim,)),
        "time": vector,
        "pooled": time_weights(config.pooled, dim),
        "joint": stacked({"picture": stream, "text": stream}, config.joint),
        **_modulation(dim, 2),
        "head": ShardedWeight((dim, config.numbers)),
        "head_bias": ShardedWeight((config.numbers,)),
    }
    found |= {"single": stacked(single, config.single)} if config.single else {}
    return found | ({"guidance": vector} if config.guided else {})


def _modulation(dim: int, parts: int) -> dict[str, ShardedWeight]:
    return {
        "modulation": ShardedWeight((dim, parts * dim), ("fsdp", None)),
        "modulation_bias": ShardedWeight((parts * dim,)),
    }


def _parts(condition: jax.Array, w: Any, count: int) -> list[jax.Array]:
    return jnp.split(condition @ w["modulation"] + w["modulation_bias"], count, axis=-1)


def velocity(params: Any, data: Any, *, config: MmditConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """The predicted way from the picture to the noise (B, patches, numbers) of noisy latents."""
    tree = weights(config)
    condition = embed_time(data["times"], params["time"])
    if config.guided:
        condition = condition + embed_time(data["guidance"], params["guidance"])
    whole_text = jax.nn.silu(data["pooled"] @ params["pooled"]["time1"] + params["pooled"]["time1_bias"])
    condition = condition + whole_text @ params["pooled"]["time2"] + params["pooled"]["time2_bias"]
    condition = jax.nn.silu(condition)
    table = layout.gather(params["words"], tree["words"])
    text = layout.constrain(data["text"] @ table + params["words_bias"], BATCH, None, None)
    picture = layout.constrain(data["images"] @ params["patch"] + params["patch_bias"], BATCH, None, None)

    attending = partial(attend, layout=layout, causal=False)

    def turned(h: jax.Array, w: Any) -> tuple[jax.Array, ...]:
        q, k, v = heads_of(h, w, layout=layout, heads=config.heads)
        return rms_norm(q, w["q_norm"]), rms_norm(k, w["k_norm"]), v

    def attended(parts: list[tuple[jax.Array, ...]]) -> jax.Array:
        q, k, v = (jnp.concatenate(each, axis=1) if len(each) > 1 else each[0] for each in zip(*parts, strict=True))
        places = jnp.arange(q.shape[1])
        q, k = (rotary(x, places, theta=_THETA) for x in (q, k))
        return attending(q, k, v)

    def joint(streams: Any, w: Any) -> Any:
        found = dict(zip(("text", "picture"), streams, strict=True))
        told = {name: _parts(condition, w[name], 6) for name in found}
        normed = {name: modulated(x, told[name][0], told[name][1]) for name, x in found.items()}
        seen = attended([turned(layout.whole(normed[name]), w[name]) for name in found])
        first = found["text"].shape[1]
        halves = {"text": seen[:, :first], "picture": seen[:, first:]}
        made = []
        for name, x in found.items():
            y = kept(merged(halves[name], w[name], layout=layout) + w[name]["bo"])
            x = kept(layout.constrain(x + told[name][2][:, None] * y, *layout.residual))
            h = layout.whole(modulated(x, told[name][3], told[name][4]))
            h = kept(feed_forward(h, w[name], layout=layout, activation="gelu") + w[name]["b2"])
            made.append(layout.constrain(x + told[name][5][:, None] * h, *layout.residual))
        return tuple(made)

    def alone(x: jax.Array, w: Any) -> jax.Array:
        shift, scale, gate = _parts(condition, w, 3)
        h = layout.whole(modulated(x, shift, scale))
        y = merged(attended([turned(h, w)]), w, layout=layout)
        y = kept(y + feed_forward(h, w, layout=layout, activation="gelu") + w["bo"])
        return layout.constrain(x + gate[:, None] * y, *layout.residual)

    streams: Any = (text, picture)
    text, picture = through_layers(
        joint, streams, params["joint"], tree["joint"], remat=remat, layout=layout, marks=True
    )
    if config.single:
        x = layout.constrain(jnp.concatenate([text, picture], axis=1), *layout.residual)
        x = through_layers(alone, x, params["single"], tree["single"], remat=remat, layout=layout, marks=True)
        picture = x[:, config.words :]
    shift, scale = _parts(condition, params, 2)
    made = modulated(picture, shift, scale) @ params["head"] + params["head_bias"]
    return layout.constrain(made, BATCH, None, None)


def _fields(config: MmditConfig, batch: int, dtype: DTypeLike) -> Fields:
    rows = ((batch,), jnp.float32)
    found: Fields = {
        "images": ((batch, config.patches, config.numbers), dtype),
        "text": ((batch, config.words, config.context), dtype),
        "pooled": ((batch, config.pooled), dtype),
        "times": rows,
    }
    return {**found, "guidance": rows} if config.guided else found


def train_step(
    config: MmditConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "none",
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step of flow matching (Lipman 2023): `(params, opt_state, batch) -> (params, opt_state, loss)`.

    A picture x and noise e are mixed to (1 - t) x + t e, and e - x is what the model is to say.
    """
    layout = _layout(config, mesh, attention, products)

    def loss(params: Any, batch: Any) -> jax.Array:
        share = batch["times"][:, None, None]
        noisy = ((1 - share) * batch["images"] + share * batch["noise"]).astype(compute_dtype)
        told = {name: batch[name].astype(compute_dtype) for name in ("text", "pooled")}
        params = cast(params, compute_dtype)
        found = velocity(params, {**batch, **told, "images": noisy}, config=config, layout=layout, remat=remat)
        return jnp.mean(jnp.square(found.astype(jnp.float32) - (batch["noise"] - batch["images"])))

    fields = _fields(config, batch, jnp.float32)
    data = microbatched(layout, accumulate, **fields, noise=fields["images"])
    params = layout.params(weights(config), param_dtype)
    return adamw_program(layout, loss, params, data, accumulate=accumulate, zero=zero)


def forward(
    config: MmditConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One denoising step: `(params, batch) -> velocity`."""
    layout = _layout(config, mesh, attention, products)
    score = partial(velocity, config=config, layout=layout, remat="autodiff")
    fields = _fields(config, batch, param_dtype)
    result = layout.struct(fields["images"][0], param_dtype, BATCH)
    return forward_program(layout, weights(config), score, fields, result, param_dtype=param_dtype)


def _layout(config: MmditConfig, mesh: Mapping[str, int] | None, attention: str, products: str) -> MeshLayout:
    layout = MeshLayout.of(mesh, axes=AXES, attention=attention, products=products)
    layout.require(config.heads, "tensor", "attention heads")
    return layout
