"""Hybrids of Mamba-2, attention and feed-forward layers (Nemotron-H), data, FSDP and tensor-parallel: training, forward.

Layers of one kind follow each other in a scan, whatever their places among the others: each is read, computed and kept as often,
so that a step costs what it does in the published order; the program is there for its cost, not for its weights.

Mamba-2 (Dao 2024, arXiv 2405.21060, section 6) in blocks of `chunk` positions. With a the logarithm of a head's decays, s its
steps, and A = exp(sum of a between two positions), a block's output is

    y = ((C B^T) * A * s) x + C h exp(sum of a),   h' = h exp(sum of a over the block) + sum of exp(sum of a to its end) s B^T x

four products for each block and head, and a fifth of what blocks add with the decays between them (blocks x blocks) in place of a
walk from block to block, as the paper's own listing has it: kernels written by hand hand states on in one launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.frame import forward_program
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.blocks import through_layers
from meshcast.zoo.layers.pieces import ACTIVATIONS, BATCH, Remat, cast, cross_entropy, embed, rms_norm, rotary, stacked
from meshcast.zoo.layers.products import product, products
from meshcast.zoo.layers.saving import HEADS, kept
from meshcast.zoo.program import ModelProgram, adamw_program, microbatched
from meshcast.zoo.shapes.hybrid import HybridConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")
_THETA = 1e4
_OVER = (BATCH, None, None)
_SPLIT = (BATCH, None, "tensor")


def weights(config: HybridConfig, layout: MeshLayout | None = None) -> dict[str, Any]:
    """Every parameter's shape and storage; the layers of each kind are stacked.

    What groups share is split with them where "tensor" divides them (Nemotron-H has eight), and whole on each device where not.
    """
    dim, inner, shared = config.dim, config.inner, config.groups * config.state
    split = _groups_over(config, layout or MeshLayout())
    norm = {"norm": ShardedWeight((dim,))}
    mixer = norm | {
        "gates": ShardedWeight((dim, inner), ("fsdp", "tensor")),
        "inputs": ShardedWeight((dim, inner), ("fsdp", "tensor")),
        "select": ShardedWeight((dim, 2, shared), ("fsdp", None, split)),
        "steps": ShardedWeight((dim, config.mixer_heads), ("fsdp", "tensor")),
        "kernel": ShardedWeight((config.window, inner), (None, "tensor")),
        "kernel_bias": ShardedWeight((inner,), ("tensor",)),
        "select_kernel": ShardedWeight((config.window, 2, shared), (None, None, split)),
        "select_bias": ShardedWeight((2, shared), (None, split)),
        **{name: ShardedWeight((config.mixer_heads,), ("tensor",)) for name in ("step_bias", "decay_log", "skip")},
        "inner_norm": ShardedWeight((inner,), ("tensor",)),
        "outputs": ShardedWeight((inner, dim), ("tensor", "fsdp")),
    }
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    attending = norm | {
        "wq": ShardedWeight((dim, queries), ("fsdp", "tensor")),
        "wk": ShardedWeight((dim, keys), ("fsdp", "tensor")),
        "wv": ShardedWeight((dim, keys), ("fsdp", "tensor")),
        "wo": ShardedWeight((queries, dim), ("tensor", "fsdp")),
    }
    wide = norm | {
        "w1": ShardedWeight((dim, config.ffn), ("fsdp", "tensor")),
        "w2": ShardedWeight((config.ffn, dim), ("tensor", "fsdp")),
    }
    kinds = {
        "mixers": (mixer, config.mixers), "attending": (attending, config.attending), "wide": (wide, config.wide),
    }  # fmt: skip
    table = ShardedWeight((config.vocab, dim), ("tensor", "fsdp"))
    found: dict[str, Any] = {name: stacked(layer, count) for name, (layer, count) in kinds.items() if count}
    return found | {"embedding": table, "final": ShardedWeight((dim,))} | ({} if config.tied else {"head": table})


def _convolved(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Each channel over its last positions (B, S, ...), as sums of shifted ones: one pass, as causal-conv1d's kernel."""
    window = kernel.shape[0]
    padded = jnp.pad(x, ((0, 0), (window - 1, 0), *((0, 0),) * (x.ndim - 2)))
    y = bias
    for place in range(window):
        y = y + padded[:, place : place + x.shape[1]] * kernel[place]
    return y


def _groups_over(config: HybridConfig, layout: MeshLayout) -> str | None:
    """The axis that splits what groups of heads share."""
    return None if config.groups % layout.size("tensor") else "tensor"


def _running(logs: jax.Array) -> jax.Array:
    """Exp of the sum of decays' logarithms (..., L) behind position t up to position s: (..., L, L), zero where t > s."""
    sums = jnp.cumsum(logs, axis=-1)
    length = logs.shape[-1]
    earlier = jnp.arange(length)[:, None] >= jnp.arange(length)
    return jnp.where(earlier, jnp.exp(sums[..., :, None] - sums[..., None, :]), 0.0)


def mixed(
    x: jax.Array, steps: jax.Array, decays: jax.Array, b: jax.Array, c: jax.Array, config: HybridConfig
) -> jax.Array:
    """The recurrence over x (B, S, H, P) with steps and logarithms of decays (B, S, H), and b, c (B, S, G, N), in blocks."""
    batch, length, heads, width = x.shape
    size = min(config.chunk, length)
    blocks, each = length // size, heads // config.groups

    def blocked(y: jax.Array) -> jax.Array:
        return y.reshape(batch, blocks, size, *y.shape[2:])

    x = blocked((x * steps[..., None]).astype(x.dtype)).reshape(batch, blocks, size, config.groups, each, width)
    b, c = blocked(b), blocked(c)
    logs = blocked(decays).reshape(batch, blocks, size, config.groups, each).transpose(0, 1, 3, 4, 2)  # b k g e l
    sums = jnp.cumsum(logs, axis=-1)
    scores = jnp.einsum("bklgn,bkmgn->bkglm", c, b)
    shares = (scores[:, :, :, None].astype(jnp.float32) * _running(logs)).astype(x.dtype)
    within = jnp.einsum("bkgelm,bkmgep->bklgep", shares, x)
    to_end = jnp.exp(sums[..., -1:] - sums).transpose(0, 1, 4, 2, 3)[..., None]
    added = jnp.einsum("bklgn,bklgep->bkgepn", b, (x * to_end).astype(x.dtype)).astype(jnp.float32)

    # What earlier blocks leave: shares of what each adds, blocks x blocks; one row more would be the state behind all of them.
    ends = jnp.pad(sums[..., -1].transpose(0, 2, 3, 1), ((0, 0), (0, 0), (0, 0), (1, 0)))
    between = _running(ends)[..., :-1, 1:]
    before = jnp.einsum("bgezk,bkgepn->bzgepn", between, added).astype(x.dtype)
    from_start = jnp.exp(sums).transpose(0, 1, 4, 2, 3)[..., None].astype(x.dtype)
    across = jnp.einsum("bklgn,bkgepn->bklgep", c, before) * from_start
    return (within + across).reshape(batch, length, heads, width)


def _mixer(x: jax.Array, w: Any, *, config: HybridConfig, layout: MeshLayout) -> jax.Array:
    """A layer of Mamba-2 with its residual sum."""
    h = layout.whole(rms_norm(x, w["norm"]))
    gates, inputs = products(
        "bsd,de->bse", h, (w["gates"], w["inputs"]), layout, over=_OVER, held=layout.sequence_parallel
    )
    split = _groups_over(config, layout)
    select, steps = jnp.einsum("bsd,dce->bsce", h, w["select"]), h @ w["steps"]
    gates, inputs = (layout.constrain(kept(y), *_SPLIT) for y in (gates, inputs))
    inputs = jax.nn.silu(_convolved(inputs, w["kernel"], w["kernel_bias"]))
    select = layout.constrain(kept(select), BATCH, None, None, split)
    select = jax.nn.silu(_convolved(select, w["select_kernel"], w["select_bias"]))
    b, c = (select[:, :, place].reshape(*h.shape[:2], config.groups, config.state) for place in range(2))
    steps = jax.nn.softplus((layout.constrain(steps, *_SPLIT) + w["step_bias"]).astype(jnp.float32))
    decays = steps * -jnp.exp(w["decay_log"].astype(jnp.float32))
    heads = inputs.reshape(*inputs.shape[:2], config.mixer_heads, config.mixer_head)
    y = mixed(heads, steps, decays, b, c, config) + heads * w["skip"][:, None]
    y = layout.constrain(y.reshape(inputs.shape) * jax.nn.silu(gates), *_SPLIT)
    y = product("bse,ed->bsd", rms_norm(y, w["inner_norm"]), w["outputs"], layout, over=_SPLIT, number=2)
    return layout.constrain(x + y, *layout.residual)


def _attending(x: jax.Array, w: Any, *, config: HybridConfig, layout: MeshLayout) -> jax.Array:
    """A layer of grouped-query attention with its residual sum."""
    h = layout.whole(rms_norm(x, w["norm"]))
    q, k, v = products("bsd,de->bse", h, (w["wq"], w["wk"], w["wv"]), layout, over=_OVER, held=layout.sequence_parallel)
    q, k, v = (layout.constrain(kept(y, HEADS), *_SPLIT).reshape(*h.shape[:2], -1, config.head_dim) for y in (q, k, v))
    places = jnp.arange(h.shape[1])
    q, k = (rotary(y, places, theta=_THETA) for y in (q, k))
    y = layout.constrain(attend(q, k, v, layout=layout).reshape(*h.shape[:2], -1), *_SPLIT)
    return layout.constrain(x + product("bse,ed->bsd", y, w["wo"], layout, over=_SPLIT, number=2), *layout.residual)


def _wide(x: jax.Array, w: Any, *, layout: MeshLayout) -> jax.Array:
    """A feed-forward layer of squared ReLUs (So 2021) with its residual sum."""
    h = layout.whole(rms_norm(x, w["norm"]))
    h = ACTIVATIONS["squared_relu"](
        kept(product("bsd,df->bsf", h, w["w1"], layout, over=_OVER, held=layout.sequence_parallel))
    )
    return layout.constrain(x + product("bsf,fd->bsd", h, w["w2"], layout, over=_SPLIT, number=2), *layout.residual)


def logits(params: Any, tokens: jax.Array, *, config: HybridConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """Logits (B, S, vocabulary) of every position."""
    tree = weights(config, layout)
    x = embed(layout.gather(params["embedding"], tree["embedding"]), tokens, layout)
    x = layout.constrain(x, *layout.residual)
    kinds: dict[str, Any] = {
        "mixers": partial(_mixer, config=config, layout=layout),
        "attending": partial(_attending, config=config, layout=layout),
        "wide": partial(_wide, layout=layout),
    }
    for name, body in kinds.items():
        if name in params:
            x = through_layers(body, x, params[name], tree[name], remat=remat, layout=layout, marks=True)
    name = "embedding" if config.tied else "head"
    x = layout.whole(rms_norm(x, params["final"]))
    return layout.constrain(
        jnp.einsum("bsd,vd->bsv", x, layout.gather(params[name], tree[name])), BATCH, None, "tensor"
    )


def _layout(
    config: HybridConfig, mesh: Mapping[str, int] | None, seq: int, attention: str, products: str,
    *, sequence_parallel: bool = False,
) -> MeshLayout:  # fmt: skip
    if seq % min(config.chunk, seq):
        raise UsageError(f"seq={seq} is no multiple of chunk={config.chunk}", where="--set", fix="change one of them")
    layout = MeshLayout.of(mesh, axes=AXES, sequence_parallel=sequence_parallel, attention=attention, products=products)
    for count, what in ((config.mixer_heads, "heads of Mamba-2"), (config.kv_heads, "heads of keys")):
        layout.require(count, "tensor", what)
    return layout


def train_step(
    config: HybridConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 8192,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "none",
    sequence_parallel: bool = False,
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
    gradient_dtype: DTypeLike = "float32",
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = _layout(config, mesh, seq, attention, products, sequence_parallel=sequence_parallel)

    def loss(params: Any, batch: Any) -> jax.Array:
        found = logits(cast(params, compute_dtype), batch["tokens"], config=config, layout=layout, remat=remat)
        return cross_entropy(found, batch["targets"])

    rows = ((batch, seq), jnp.int32)
    data = microbatched(layout, accumulate, tokens=rows, targets=rows)
    params = layout.params(weights(config, layout), param_dtype)
    return adamw_program(layout, loss, params, data, accumulate=accumulate, zero=zero, gradient_dtype=gradient_dtype)


def forward(
    config: HybridConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 8192,
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position."""
    layout = _layout(config, mesh, seq, attention, products)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["tokens"], config=config, layout=layout, remat="autodiff")

    result = layout.struct((batch, seq, config.vocab), param_dtype, BATCH, None, "tensor")
    tokens = {"tokens": ((batch, seq), jnp.int32)}
    return forward_program(layout, weights(config, layout), score, tokens, result, param_dtype=param_dtype)
