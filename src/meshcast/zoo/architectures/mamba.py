"""Mamba (Gu & Dao 2023): a selective state-space model; data and FSDP parallel, channels split over "tensor".

Every channel c keeps a state h of N numbers: h_t = exp(d_t A_c) h_(t-1) + d_t B_t x_t, y_t = C_t h_t + D_c x_t. The
recurrence h_t = a_t h_(t-1) + b_t is associative, (a, b) then (a', b') = (a' a, a' b + b'), so a chunk is one associative
scan; chunks pass on their last state, which bounds what is held at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.frame import forward_program, supervised_program
from meshcast.zoo.layers import kv_cache
from meshcast.zoo.layers.blocks import through_layers
from meshcast.zoo.layers.pieces import BATCH, Remat, embed, one_layer, rms_norm, stacked
from meshcast.zoo.program import ModelProgram, jit_options
from meshcast.zoo.shapes.mamba import MambaConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")


def weights(config: MambaConfig, *, scan: bool = True) -> dict[str, Any]:
    """Every parameter's shape and storage; layers are stacked on a leading axis for a scan, else separate."""
    channels, rank, state = config.channels, config.rank, config.state
    layer = {
        "norm": ShardedWeight((config.dim,)),
        "inputs": ShardedWeight((config.dim, channels), ("fsdp", "tensor")),
        "gates": ShardedWeight((config.dim, channels), ("fsdp", "tensor")),
        "kernel": ShardedWeight((config.window, 1, channels), (None, None, "tensor")),
        "kernel_bias": ShardedWeight((channels,), ("tensor",)),
        "select": ShardedWeight((channels, rank + 2 * state), (("tensor", "fsdp"), None)),
        "step": ShardedWeight((rank, channels), (None, "tensor")),
        "step_bias": ShardedWeight((channels,), ("tensor",)),
        "decay_log": ShardedWeight((channels, state), ("tensor", None)),
        "skip": ShardedWeight((channels,), ("tensor",)),
        "outputs": ShardedWeight((channels, config.dim), ("tensor", "fsdp")),
    }
    return {
        "embedding": ShardedWeight((config.vocab, config.dim), ("tensor", "fsdp")),
        "layers": stacked(layer, config.layers) if scan else [layer] * config.layers,
        "norm": ShardedWeight((config.dim,)),
    }


def convolve(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """Each channel over its last positions (B, S, channels)."""
    window, _, channels = w["kernel"].shape
    y = jax.lax.conv_general_dilated(
        x, w["kernel"], (1,), [(window - 1, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=channels
    )
    return y + w["kernel_bias"]


def selection(x: jax.Array, w: dict[str, jax.Array], config: MambaConfig, layout: MeshLayout) -> tuple[jax.Array, ...]:
    """Decay (B, S, channels, state), input (same) and read-out (B, S, state) of convolved inputs."""
    chosen = layout.constrain(x @ w["select"], BATCH, None, None)
    step, b, c = jnp.split(chosen, [config.rank, config.rank + config.state], axis=-1)
    step = jax.nn.softplus((step @ w["step"] + w["step_bias"]).astype(jnp.float32))
    decay = jnp.exp(step[..., None] * -jnp.exp(w["decay_log"].astype(jnp.float32)))
    added = (step * x)[..., None] * b[:, :, None].astype(jnp.float32)
    return decay, added, c


def _then(first: Any, second: Any) -> Any:
    """Two steps of the recurrence as one."""
    return second[0] * first[0], second[0] * first[1] + second[1]


def scan_chunks(
    x: jax.Array, w: dict[str, jax.Array], config: MambaConfig, layout: MeshLayout
) -> tuple[jax.Array, jax.Array]:
    """The recurrence over convolved inputs (B, S, channels), a chunk at a time; the last state too."""
    batch, length, channels = x.shape
    size = min(config.chunk, length)

    def chunk(state: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        decay, added, readout = selection(x, w, config, layout)
        decays, states = jax.lax.associative_scan(_then, (decay, added), axis=1)
        states = layout.constrain(states + decays * state[:, None], BATCH, None, "tensor", None)
        return states[:, -1], jnp.einsum("bscn,bsn->bsc", states, readout.astype(jnp.float32)).astype(x.dtype)

    start = layout.constrain(jnp.zeros((batch, channels, config.state), jnp.float32), BATCH, "tensor", None)
    chunks = x.reshape(batch, length // size, size, channels).swapaxes(0, 1)
    state, y = jax.lax.scan(chunk, start, layout.constrain(chunks, None, BATCH, None, "tensor"))
    return layout.constrain(y.swapaxes(0, 1).reshape(x.shape), BATCH, None, "tensor"), state


def layer(
    x: jax.Array, w: dict[str, jax.Array], *, config: MambaConfig, layout: MeshLayout
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """One layer with its residual sum, and what a step after it needs: its inputs, and the last state."""
    h = layout.constrain(rms_norm(x, w["norm"]), BATCH, None, None)
    inputs, gates = (layout.constrain(h @ w[name], BATCH, None, "tensor") for name in ("inputs", "gates"))
    convolved = jax.nn.silu(convolve(inputs, w))
    y, state = scan_chunks(convolved, w, config, layout)
    y = (y + convolved * w["skip"]) * jax.nn.silu(gates)
    return x + layout.constrain(y @ w["outputs"], BATCH, None, None), {"recent": inputs, "state": state}


def project_out(x: jax.Array, params: Any, config: MambaConfig, layout: MeshLayout) -> jax.Array:
    """Logits (B, S, vocabulary); the projection is the embedding."""
    table = layout.gather(params["embedding"], weights(config)["embedding"])
    return layout.constrain(jnp.einsum("bsd,vd->bsv", rms_norm(x, params["norm"]), table), BATCH, None, "tensor")


def embedded(params: Any, tokens: jax.Array, config: MambaConfig, layout: MeshLayout) -> jax.Array:
    """Activations (B, S, dim) of tokens."""
    table = layout.gather(params["embedding"], weights(config)["embedding"])
    return layout.constrain(embed(table, tokens, layout), BATCH, None, None)


def logits(params: Any, tokens: jax.Array, *, config: MambaConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """Logits of every position."""

    def body(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        return layer(x, w, config=config, layout=layout)[0]

    x = embedded(params, tokens, config, layout)
    tree = weights(config, scan=not isinstance(params["layers"], list))
    x = through_layers(body, x, params["layers"], tree["layers"], remat=remat, layout=layout)
    return project_out(x, params, config, layout)


def _check_length(config: MambaConfig, seq: int) -> None:
    if seq % min(config.chunk, seq):
        raise UsageError(f"seq={seq} is no multiple of chunk={config.chunk}", where="--set", fix="change one of them")


def train_step(
    config: MambaConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "full",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    _check_length(config, seq)
    layout = MeshLayout.of(mesh, axes=AXES)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["tokens"], config=config, layout=layout, remat=remat)

    rows = ((batch, seq), jnp.int32)
    return supervised_program(
        layout, weights(config), score, {"tokens": rows, "targets": rows}, labels="targets",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: MambaConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    scan: bool = True,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position."""
    _check_length(config, seq)
    layout = MeshLayout.of(mesh, axes=AXES)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["tokens"], config=config, layout=layout, remat="autodiff")

    result = layout.struct((batch, seq, config.vocab), param_dtype, BATCH, None, "tensor")
    tokens = {"tokens": ((batch, seq), jnp.int32)}
    return forward_program(layout, weights(config, scan=scan), score, tokens, result, param_dtype=param_dtype)


def prefill(
    config: MambaConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    scan: bool = False,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """A prompt of `seq` tokens: `(params, cache, batch) -> (cache, next tokens)`; the state does not grow with it."""
    _check_length(config, seq)
    layout = MeshLayout.of(mesh, axes=AXES)
    tree = one_layer(weights(config)["layers"])

    def body(carry: Any, xs: Any) -> tuple[Any, None]:
        (x, held), (index, w) = carry, xs
        x, new = layer(x, layout.gather(w, tree), config=config, layout=layout)
        short = max(config.window - seq, 0)
        recent = jnp.pad(new["recent"][:, -config.window :], ((0, 0), (short, 0), (0, 0)))
        return (x, _replaced(held, new | {"recent": recent}, index)), None

    def prefill(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        x = embedded(params, batch["tokens"], config, layout)
        return _walked(body, x, cache, params, config, layout)

    data = {"tokens": layout.struct((batch, seq), jnp.int32, BATCH)}
    return _cached_program(prefill, config, layout, data, batch, param_dtype, scan=scan)


def _held(stack: jax.Array, index: jax.Array | int) -> jax.Array:
    """What one layer keeps."""
    if isinstance(index, int):  # the only layer of its array
        return stack.reshape(stack.shape[1:])
    held: jax.Array = jax.lax.dynamic_index_in_dim(stack, index, keepdims=False)
    return held


def _replaced(held: Any, new: Any, index: jax.Array | int) -> Any:
    """The cache with what one layer keeps now."""
    if isinstance(index, int):  # the only layer of its arrays
        return {name: new[name][None].astype(held[name].dtype) for name in new}
    return {name: jax.lax.dynamic_update_index_in_dim(held[name], new[name], index, 0) for name in new}


def _walked(
    body: Any, x: jax.Array, cache: Any, params: Any, config: MambaConfig, layout: MeshLayout
) -> tuple[Any, jax.Array]:
    """The cache after every layer, and the likeliest token after the last position."""
    x, cache = kv_cache.through_layers(body, x, cache, params["layers"])
    return cache, jnp.argmax(project_out(x[:, -1:], params, config, layout)[:, 0], axis=-1).astype(jnp.int32)


def _cached_program(
    function: Any, config: MambaConfig, layout: MeshLayout, data: Any, batch: int, param_dtype: DTypeLike, *, scan: bool
) -> ModelProgram:
    """A program over what each layer keeps: the inputs of its window, and its state."""

    def kept(layers: int) -> dict[str, Any]:
        recent = (layers, batch, config.window, config.channels)
        state = (layers, batch, config.channels, config.state)
        return {
            "recent": layout.struct(recent, param_dtype, None, BATCH, None, "tensor"),
            "state": layout.struct(state, jnp.float32, None, BATCH, "tensor", None),
        }

    cache: Any = kept(config.layers) if scan else [kept(1) for _ in range(config.layers)]
    tokens = layout.struct((batch,), jnp.int32, BATCH)
    args = (layout.params(weights(config, scan=scan), param_dtype), cache, data)
    return function, args, jit_options(layout, donate=(1,), results=(cache, tokens))


def decode_step(
    config: MambaConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    scan: bool = False,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One token for every sequence: `(params, cache, batch) -> (cache, next tokens)`; the state has no length."""
    layout = MeshLayout.of(mesh, axes=AXES)
    tree = one_layer(weights(config)["layers"])

    def body(carry: Any, xs: Any) -> tuple[Any, None]:
        (x, held), (index, w) = carry, xs
        w = layout.gather(w, tree)
        recent, state = (_held(held[name], index) for name in ("recent", "state"))
        h = rms_norm(x, w["norm"])
        inputs, gates = (layout.constrain(h @ w[name], BATCH, None, "tensor") for name in ("inputs", "gates"))
        recent = jnp.concatenate([recent[:, 1:], inputs], axis=1)
        inputs = jax.nn.silu(jnp.einsum("bwc,wc->bc", recent, w["kernel"][:, 0]) + w["kernel_bias"])[:, None]
        decay, added, readout = selection(inputs, w, config, layout)
        state = decay[:, 0] * state + added[:, 0]
        y = jnp.einsum("bcn,bn->bc", state, readout[:, 0].astype(jnp.float32)).astype(x.dtype)[:, None]
        y = (y + inputs * w["skip"]) * jax.nn.silu(gates)
        x = x + layout.constrain(y @ w["outputs"], BATCH, None, None)
        return (x, _replaced(held, {"recent": recent, "state": state}, index)), None

    def decode_step(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        x = embedded(params, batch["tokens"][:, None], config, layout)
        return _walked(body, x, cache, params, config, layout)

    data = {"tokens": layout.struct((batch,), jnp.int32, BATCH)}
    return _cached_program(decode_step, config, layout, data, batch, param_dtype, scan=scan)
