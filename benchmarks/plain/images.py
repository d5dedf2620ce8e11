"""Images, channels last."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.plain.catalogue import BF16, F32, KEY, PROGRAMS, Call, cast, ints, program, spec
from benchmarks.plain.layers import attend, heads_of, layer_norm, token_loss
from benchmarks.plain.optimizers import training


def convolved(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    """SAME padding."""
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def batch_norm(x: Any, g: Any, b: Any) -> Any:
    """Of the batch's own statistics."""
    mean, var = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
    return (x - mean) * lax.rsqrt(var + 1e-5) * g + b


def group_norm(x: Any, g: Any, b: Any, groups: int = 32) -> Any:
    """Of groups of channels."""
    y = x.reshape(*x.shape[:-1], groups, -1).astype(F32)
    mean, var = y.mean((1, 2, 4), keepdims=True), y.var((1, 2, 4), keepdims=True)
    return ((y - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape).astype(x.dtype) * g + b


def pooled(x: Any, size: int = 2) -> Any:
    """Means of squares."""
    return lax.reduce_window(x, 0.0, lax.add, (1, size, size, 1), (1, size, size, 1), "VALID") / size**2


def dense_net(dtype: Any = F32, blocks: tuple[int, ...] = (4, 6)) -> Call:
    """Dense blocks: every layer reads all before it."""
    growth, width, batch = 32, 64, 32
    params: Any = {"stem": spec(7, 7, 3, width), "blocks": [], "turns": []}
    channels = width
    for count in blocks:
        layers = []
        for i in range(count):
            c = channels + i * growth
            layers.append({
                "g1": spec(c), "b1": spec(c), "w1": spec(1, 1, c, 4 * growth),
                "g2": spec(4 * growth), "b2": spec(4 * growth), "w2": spec(3, 3, 4 * growth, growth),
            })  # fmt: skip
        channels += count * growth
        params["blocks"].append(layers)
        params["turns"].append({"g": spec(channels), "b": spec(channels), "w": spec(1, 1, channels, channels // 2)})
        channels //= 2
    params["out"] = spec(channels, 1000)

    def forward(params: Any, x: Any) -> Any:
        params, x = cast(params, dtype), x.astype(dtype)
        x = convolved(x, params["stem"], 4)
        for layers, turn in zip(params["blocks"], params["turns"], strict=True):
            for p in layers:
                y = convolved(jax.nn.relu(batch_norm(x, p["g1"], p["b1"])), p["w1"])
                y = convolved(jax.nn.relu(batch_norm(y, p["g2"], p["b2"])), p["w2"])
                x = jnp.concatenate([x, y], -1)
            x = pooled(convolved(jax.nn.relu(batch_norm(x, turn["g"], turn["b"])), turn["w"]))
        return x.mean((1, 2)) @ params["out"]

    images, labels = spec(batch, 224, 224, 3), ints(batch)
    return training(lambda p, x, y: token_loss(forward(p, x), y, "lse"), params, (images, labels), "sgd")


PROGRAMS["densenet_f32"] = dense_net
PROGRAMS["densenet_narrow"] = partial(dense_net, F32, (6, 6))
PROGRAMS["densenet_mixed"] = partial(dense_net, BF16, (3, 8))
PROGRAMS["densenet_bf16"] = partial(dense_net, BF16)


@program("vit_train")
def _() -> Call:
    layers, dim, heads, batch = 3, 768, 12, 32
    one = {
        "qkv": spec(dim, 3 * dim), "bq": spec(3 * dim), "o": spec(dim, dim), "bo": spec(dim), "u": spec(dim, 4 * dim),
        "bu": spec(4 * dim), "d": spec(4 * dim, dim), "bd": spec(dim),
        "g1": spec(dim), "b1": spec(dim), "g2": spec(dim), "b2": spec(dim),
    }  # fmt: skip
    params = {
        "patch": spec(16 * 16 * 3, dim),
        "cls": spec(1, 1, dim),
        "pos": spec(197, dim),
        "layers": [one] * layers,
        "out": spec(dim, 1000),
    }

    def loss(params: Any, x: Any, labels: Any) -> Any:
        params = cast(params, BF16)
        x = x.astype(BF16).reshape(batch, 14, 16, 14, 16, 3).transpose(0, 1, 3, 2, 4, 5).reshape(batch, 196, -1)
        x = jnp.concatenate([jnp.broadcast_to(params["cls"], (batch, 1, dim)), x @ params["patch"]], 1) + params["pos"]
        for p in params["layers"]:
            qkv = (layer_norm(x, p["g1"], p["b1"]) @ p["qkv"] + p["bq"]).reshape(batch, 197, 3, heads, -1)
            a = attend(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
            x = x + a.reshape(x.shape) @ p["o"] + p["bo"]
            y = jax.nn.gelu(layer_norm(x, p["g2"], p["b2"]) @ p["u"] + p["bu"])
            x = x + y @ p["d"] + p["bd"]
        return token_loss(x[:, 0] @ params["out"], labels, "one-hot")

    return training(loss, params, (spec(batch, 224, 224, 3), ints(batch)), "adamw")


@program("convnext_train")
def _() -> Call:
    dims, depth, batch = (96, 192), 2, 32
    stages = []
    for c in dims:
        one = {
            "dw": spec(7, 7, 1, c),
            "g": spec(c),
            "b": spec(c),
            "u": spec(c, 4 * c),
            "d": spec(4 * c, c),
            "s": spec(c),
        }
        stages.append([one] * depth)
    params = {"stem": spec(4, 4, 3, dims[0]), "down": spec(2, 2, *dims), "stages": stages, "out": spec(dims[1], 1000)}

    def loss(params: Any, x: Any, labels: Any) -> Any:
        params = cast(params, BF16)
        x = convolved(x.astype(BF16), params["stem"], 4)
        for i, stage in enumerate(params["stages"]):
            if i:
                x = convolved(x, params["down"], 2)
            for p in stage:
                y = layer_norm(convolved(x, p["dw"], 1, x.shape[-1]), p["g"], p["b"])
                x = x + p["s"] * (jax.nn.gelu(y @ p["u"]) @ p["d"])
        return token_loss(x.mean((1, 2)) @ params["out"], labels, "smooth")

    return training(loss, params, (spec(batch, 224, 224, 3), ints(batch)), "adamw")


@program("unet_attention_diffusion")
def _() -> Call:
    batch, width = 16, 128

    def res(a: int, b: int) -> Any:
        norms = {"g1": spec(a), "b1": spec(a), "g2": spec(b), "b2": spec(b)}
        convolutions = {"w1": spec(3, 3, a, b), "w2": spec(3, 3, b, b), "skip": spec(1, 1, a, b)}
        return norms | convolutions | {"t": spec(4 * width, b)}

    c = 2 * width
    params = {
        "in": spec(3, 3, 3, width), "t1": spec(width, 4 * width), "t2": spec(4 * width, 4 * width), "d1": res(width, width),
        "d2": res(width, c), "mid": res(c, c), "qkv": spec(c, 3 * c), "proj": spec(c, c), "ga": spec(c), "ba": spec(c),
        "u2": res(2 * c, c), "u1": res(c + width, width), "out": spec(3, 3, width, 3),
    }  # fmt: skip

    def residual(x: Any, t: Any, p: Any) -> Any:
        y = convolved(jax.nn.silu(group_norm(x, p["g1"], p["b1"])), p["w1"]) + (jax.nn.silu(t) @ p["t"])[:, None, None]
        y = convolved(jax.nn.silu(group_norm(y, p["g2"], p["b2"])), p["w2"])
        return y + convolved(x, p["skip"])

    def predicted(p: Any, x: Any, t: Any) -> Any:
        f = jnp.exp(-jnp.log(10000.0) * jnp.arange(width // 2) / (width // 2))
        e = jnp.concatenate([jnp.sin(t[:, None] * f), jnp.cos(t[:, None] * f)], -1).astype(x.dtype)
        e = jax.nn.silu(e @ p["t1"]) @ p["t2"]
        a = residual(convolved(x, p["in"]), e, p["d1"])
        b = residual(pooled(a), e, p["d2"])
        m = residual(pooled(b), e, p["mid"])
        y = group_norm(m, p["ga"], p["ba"]).reshape(batch, -1, c)
        q, k, v = (heads_of(each, 4) for each in jnp.split(y @ p["qkv"], 3, -1))
        m = m + (attend(q, k, v).reshape(y.shape) @ p["proj"]).reshape(m.shape)
        up = lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)  # noqa: E731
        y = residual(jnp.concatenate([up(m), b], -1), e, p["u2"])
        y = residual(jnp.concatenate([up(y), a], -1), e, p["u1"])
        return convolved(y, p["out"])

    def loss(params: Any, x: Any, key: Any) -> Any:
        params, x = cast(params, BF16), x.astype(BF16)
        k1, k2 = jax.random.split(key)
        t = jax.random.randint(k1, (batch,), 0, 1000)
        bars = jnp.cumprod(1 - jnp.linspace(1e-4, 0.02, 1000))[t][:, None, None, None].astype(BF16)
        noise = jax.random.normal(k2, x.shape, x.dtype)
        out = predicted(params, jnp.sqrt(bars) * x + jnp.sqrt(1 - bars) * noise, t.astype(F32))
        return jnp.mean((out - noise).astype(F32) ** 2)

    return training(loss, params, (spec(batch, 64, 64, 3), KEY), "adamw")


@program("mixer_train")
def _() -> Call:
    layers, dim, tokens, batch = 4, 512, 196, 64
    one = {
        "g1": spec(dim),
        "b1": spec(dim),
        "t1": spec(tokens, 256),
        "t2": spec(256, tokens),
        "g2": spec(dim),
        "b2": spec(dim),
        "c1": spec(dim, 2048),
        "c2": spec(2048, dim),
    }
    params = {"patch": spec(768, dim), "layers": [one] * layers, "out": spec(dim, 1000)}

    def loss(params: Any, x: Any, labels: Any) -> Any:
        x = x @ params["patch"]
        for p in params["layers"]:
            y = jnp.swapaxes(layer_norm(x, p["g1"], p["b1"]), 1, 2)
            x = x + jnp.swapaxes(jax.nn.gelu(y @ p["t1"]) @ p["t2"], 1, 2)
            x = x + jax.nn.gelu(layer_norm(x, p["g2"], p["b2"]) @ p["c1"]) @ p["c2"]
        return token_loss(x.mean(1) @ params["out"], labels, "take")

    return training(loss, params, (spec(batch, tokens, 768), ints(batch)), "adam")
