"""The U-Net of latent diffusion (Rombach 2022): convolutions, self- and cross-attention; data and FSDP parallel.

Down: at every resolution residual blocks, each followed by attention where the resolution has it, then a halving. In the
middle: block, attention, block. Up: as down, each block given what the way down left at its height.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import Fields
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.diffusion import embed_time, noised, squared_error, time_weights
from meshcast.zoo.layers.pieces import BATCH, cast, layer_norm
from meshcast.zoo.program import ModelProgram, adamw_program, jit_options, microbatched
from meshcast.zoo.shapes.unet import UnetConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp")


def _convolution(kernel: int, inputs: int, outputs: int) -> dict[str, ShardedWeight]:
    return {
        "kernel": ShardedWeight((kernel, kernel, inputs, outputs), (None, None, None, "fsdp")),
        "bias": ShardedWeight((outputs,)),
    }


def _norm(width: int) -> dict[str, ShardedWeight]:
    return {"scale": ShardedWeight((width,)), "bias": ShardedWeight((width,))}


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> dict[str, ShardedWeight]:
    kernel = {"kernel": ShardedWeight((inputs, outputs), (None, "fsdp"))}
    return kernel | ({"bias": ShardedWeight((outputs,))} if bias else {})


def _residual_weights(config: UnetConfig, inputs: int, outputs: int) -> dict[str, Any]:
    found = {
        "norm1": _norm(inputs), "conv1": _convolution(3, inputs, outputs), "time": _linear(config.time, outputs),
        "norm2": _norm(outputs), "conv2": _convolution(3, outputs, outputs),
    }  # fmt: skip
    return found | ({"shortcut": _convolution(1, inputs, outputs)} if inputs != outputs else {})


def _attention_weights(width: int, source: int) -> dict[str, Any]:
    return {
        "norm": _norm(width), "q": _linear(width, width, bias=False), "k": _linear(source, width, bias=False),
        "v": _linear(source, width, bias=False), "out": _linear(width, width),
    }  # fmt: skip


def _transformer_weights(config: UnetConfig, width: int, depth: int) -> dict[str, Any]:
    layer = {
        "own": _attention_weights(width, width), "text": _attention_weights(width, config.context),
        "ffn_norm": _norm(width), "up": _linear(width, 8 * width), "down": _linear(4 * width, width),
    }  # fmt: skip
    around = {"norm": _norm(width), "inputs": _convolution(1, width, width), "outputs": _convolution(1, width, width)}
    return around | {"layers": [layer] * depth}


def weights(config: UnetConfig) -> dict[str, Any]:
    """Every parameter's shape and storage."""
    first, last = config.widths[0], config.widths[-1]
    heights = [(width, config.depth(height)) for height, width in enumerate(config.widths)]

    def block(inputs: int, outputs: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {"residual": _residual_weights(config, inputs, outputs)}
        return found | ({"transformer": _transformer_weights(config, outputs, depth)} if depth else {})

    down, left, inputs = [], [first], first
    for height, (width, depth) in enumerate(heights):
        stage: dict[str, Any] = {"blocks": []}
        for _ in range(config.blocks):
            stage["blocks"].append(block(inputs, width, depth))
            inputs = width
            left.append(width)
        if height < len(heights) - 1:
            stage["halve"] = _convolution(3, width, width)
            left.append(width)
        down.append(stage)
    up = []
    for height, (width, depth) in reversed(list(enumerate(heights))):
        stage = {"blocks": []}
        for _ in range(config.blocks + 1):
            stage["blocks"].append(block(inputs + left.pop(), width, depth))
            inputs = width
        if height:
            stage["double"] = _convolution(3, width, width)
        up.append(stage)
    added = {"added": time_weights(config.added, config.time)} if config.added else {}
    return added | {
        "time": time_weights(first, config.time),
        "stem": _convolution(3, config.channels, first),
        "down": down,
        "middle": [
            {
                "residual": _residual_weights(config, last, last),
                "transformer": _transformer_weights(config, last, config.middle),
            },
            {"residual": _residual_weights(config, last, last)},
        ],
        "up": up,
        "norm": _norm(first),
        "head": _convolution(3, first, config.channels),
    }


def convolve(x: jax.Array, w: dict[str, jax.Array], stride: int = 1) -> jax.Array:
    """A convolution (B, H, W, channels) that keeps the size up to its stride."""
    pad = w["kernel"].shape[0] // 2
    y = jax.lax.conv_general_dilated(
        x, w["kernel"], (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return y + w["bias"]


def group_norm(x: jax.Array, w: dict[str, jax.Array], groups: int, epsilon: float = 1e-5) -> jax.Array:
    """Normalised (B, H, W, channels) over an image and a group of channels, computed in fp32."""
    wide = x.astype(jnp.float32).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean = jnp.mean(wide, axis=(1, 3), keepdims=True)
    variance = jnp.mean(jnp.square(wide), axis=(1, 3), keepdims=True) - jnp.square(mean)
    return ((wide - mean) * jax.lax.rsqrt(variance + epsilon)).reshape(x.shape).astype(x.dtype) * w["scale"] + w["bias"]


def linear(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """A product, and a bias where there is one."""
    return x @ w["kernel"] + w["bias"] if "bias" in w else x @ w["kernel"]


def residual(x: jax.Array, time: jax.Array, w: dict[str, Any], config: UnetConfig) -> jax.Array:
    """Two convolutions, the time's vector added between them."""
    h = convolve(jax.nn.silu(group_norm(x, w["norm1"], config.groups)), w["conv1"])
    h = h + linear(jax.nn.silu(time), w["time"])[:, None, None]
    h = convolve(jax.nn.silu(group_norm(h, w["norm2"], config.groups)), w["conv2"])
    return h + (convolve(x, w["shortcut"]) if "shortcut" in w else x)


def transformer(x: jax.Array, text: jax.Array, w: dict[str, Any], config: UnetConfig, layout: MeshLayout) -> jax.Array:
    """Pixels attend to each other and to the text, then a gated feed-forward layer."""

    def attended(x: jax.Array, source: jax.Array | None, w: dict[str, Any]) -> jax.Array:
        h = layer_norm(x, w["norm"]["scale"], w["norm"]["bias"])
        source = h if source is None else source
        q, k, v = (
            linear(each, w[name]).reshape(*each.shape[:2], config.heads_of(x.shape[-1]), -1)
            for name, each in (("q", h), ("k", source), ("v", source))
        )
        return x + linear(attend(q, k, v, layout=layout, causal=False).reshape(x.shape), w["out"])

    h = convolve(group_norm(x, w["norm"], config.groups, 1e-6), w["inputs"])
    h = h.reshape(x.shape[0], -1, x.shape[-1])
    for each in w["layers"]:
        h = attended(attended(h, None, each["own"]), text, each["text"])
        wide = linear(layer_norm(h, each["ffn_norm"]["scale"], each["ffn_norm"]["bias"]), each["up"])
        value, gate = jnp.split(wide, 2, axis=-1)
        h = h + linear(value * jax.nn.gelu(gate, approximate=False), each["down"])
    return x + convolve(h.reshape(x.shape), w["outputs"])


def denoise(params: Any, data: Any, *, config: UnetConfig, layout: MeshLayout) -> jax.Array:
    """Predicted noise (B, H, W, channels) of noisy latents, given a text (B, words, context)."""
    params = layout.gather(params, weights(config))
    time, text = embed_time(data["times"], params["time"]), data["text"]
    if config.added:
        w = params["added"]
        time = time + jax.nn.silu(data["added"] @ w["time1"] + w["time1_bias"]) @ w["time2"] + w["time2_bias"]

    def block(x: jax.Array, w: dict[str, Any]) -> jax.Array:
        x = residual(x, time, w["residual"], config)
        x = transformer(x, text, w["transformer"], config, layout) if "transformer" in w else x
        return layout.constrain(x, BATCH, None, None, None)

    x = convolve(data["images"], params["stem"])
    left = [x]
    for stage in params["down"]:
        for w in stage["blocks"]:
            x = block(x, w)
            left.append(x)
        if "halve" in stage:
            x = convolve(x, stage["halve"], 2)
            left.append(x)
    for w in params["middle"]:
        x = block(x, w)
    for stage in params["up"]:
        for w in stage["blocks"]:
            x = block(jnp.concatenate([x, left.pop()], axis=-1), w)
        if "double" in stage:
            x = convolve(jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2), stage["double"])
    return convolve(jax.nn.silu(group_norm(x, params["norm"], config.groups)), params["head"])


def train_step(
    config: UnetConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    accumulate: int = 1,
    zero: int = 0,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step on noisy latents: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = MeshLayout.of(mesh, axes=AXES, attention=attention)

    def loss(params: Any, batch: Any) -> jax.Array:
        noisy = noised(batch["images"], batch["noise"], batch["times"]).astype(compute_dtype)
        told = {name: batch[name].astype(compute_dtype) for name in ("text", "added") if name in batch}
        data = {**batch, "images": noisy, **told}
        predicted = denoise(cast(params, compute_dtype), data, config=config, layout=layout)
        return squared_error(predicted, batch["noise"])

    images = ((batch, config.image, config.image, config.channels), jnp.float32)
    added: Fields = {"added": ((batch, config.added), jnp.float32)} if config.added else {}
    data = microbatched(
        layout, accumulate, images=images, noise=images, times=((batch,), jnp.float32),
        text=((batch, config.words, config.context), jnp.float32), **added,
    )  # fmt: skip
    params = layout.params(weights(config), param_dtype)
    return adamw_program(layout, loss, params, data, accumulate=accumulate, zero=zero)


def forward(
    config: UnetConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One denoising step: `(params, batch) -> predicted noise`."""
    layout = MeshLayout.of(mesh, axes=AXES, attention=attention)

    def forward(params: Any, batch: Any) -> jax.Array:
        return denoise(params, batch, config=config, layout=layout)

    images = layout.struct((batch, config.image, config.image, config.channels), param_dtype, BATCH)
    data = {
        "images": images,
        "times": layout.struct((batch,), jnp.float32, BATCH),
        "text": layout.struct((batch, config.words, config.context), param_dtype, BATCH),
    }
    data |= {"added": layout.struct((batch, config.added), param_dtype, BATCH)} if config.added else {}
    params = layout.params(weights(config), param_dtype)
    return forward, (params, data), jit_options(layout, donate=(), results=images)
