"""Vision written out in plain JAX, by no library's layers: networks as people write them for a paper or a benchmark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import cross_entropy, integers, mixed, spec, training

IMAGES = Catalogue("plain-images", "example", "vision")
CATALOGUES = [IMAGES]
BF16, F16 = jnp.bfloat16, jnp.float16
Shapes = Any
NHWC = ("NHWC", "HWIO", "NHWC")


def conv(x: Any, w: Any, stride: int = 1, groups: int = 1, padding: str = "SAME") -> Any:
    """A convolution with channels last."""
    return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=NHWC, feature_group_count=groups)


def batch_norm(x: Any, p: Any) -> Any:
    """Normalised over images and places, as in training, in f32."""
    kept = x.astype(jnp.float32)
    mean, var = kept.mean((0, 1, 2)), kept.var((0, 1, 2))
    return ((kept - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]).astype(x.dtype)


def folded_norm(x: Any, p: Any) -> Any:
    """A scale and a shift: what is left of batch norm in inference."""
    return x * p["scale"].astype(x.dtype) + p["bias"].astype(x.dtype)


def layer_norm(x: Any, p: Any) -> Any:
    """Normalised over channels, in f32."""
    kept = x.astype(jnp.float32)
    kept = kept - kept.mean(-1, keepdims=True)
    return (kept * lax.rsqrt(jnp.mean(kept * kept, -1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]).astype(x.dtype)


def norm(channels: int) -> Shapes:
    """A scale and a shift for every channel."""
    return {"scale": spec(channels), "bias": spec(channels)}


def in_dtype(shapes: Shapes, dtype: Any) -> Shapes:
    """The same shapes in another type."""
    return jax.tree.map(lambda each: spec(*each.shape, dtype=dtype), shapes)


def classified(
    apply: Callable[..., Any], shapes: Shapes, images: Any, mode: str, narrow: Any, *, sgd: bool = True
) -> Call:
    """A classifier's forward pass in a type, or its training step with f32 weights."""
    if mode == "infer":
        return partial(apply, training=False), (in_dtype(shapes, narrow), spec(*images, dtype=narrow))

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return cross_entropy(apply(params, x, training=True), labels)

    optimizer = optax.sgd(0.1, momentum=0.9) if sgd else optax.adamw(1e-3)
    wrapped = loss if narrow == jnp.float32 else mixed(loss, narrow)
    return training(wrapped, shapes, (spec(*images, dtype=narrow), integers(1000, images[0])), optimizer)


# ConvNeXt: a depthwise 7x7, a norm over channels, and an expansion by four.
NEXT = ((3, 96), (3, 192), (9, 384), (3, 768))


def convnext_shapes() -> Shapes:
    """ConvNeXt-T's weights."""
    stages, before = [], 3
    for number, (depth, width) in enumerate(NEXT):
        side = 4 if number == 0 else 2
        block = {
            "depthwise": spec(7, 7, 1, width), "norm": norm(width), "up": spec(width, 4 * width), "up_bias": spec(4 * width),
            "down": spec(4 * width, width), "down_bias": spec(width), "gain": spec(width),
        }  # fmt: skip
        stages.append(
            {
                "patch": spec(side, side, before, width),
                "norm": norm(before if number else width),
                "blocks": [block] * depth,
            }
        )
        before = width
    return {"stages": stages, "norm": norm(before), "head": spec(before, 1000)}


def convnext(params: Any, x: Any, *, training: bool) -> Any:
    """ConvNeXt: images to logits."""
    for number, stage in enumerate(params["stages"]):
        x = layer_norm(x, stage["norm"]) if number else x
        side = stage["patch"].shape[0]
        x = conv(x, stage["patch"].astype(x.dtype), side, padding="VALID")
        x = x if number else layer_norm(x, stage["norm"])
        for block in stage["blocks"]:
            y = conv(x, block["depthwise"], groups=x.shape[-1])
            y = layer_norm(y, block["norm"])
            y = jax.nn.gelu(y @ block["up"] + block["up_bias"])
            x = x + (y @ block["down"] + block["down_bias"]) * block["gain"]
    return layer_norm(x.mean((1, 2)), params["norm"]) @ params["head"]


# MobileNetV2: inverted residuals; expansion, channels, repeats, stride.
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_plan() -> list[tuple[int, int, int, int]]:
    """Channels in, expanded, out, and the stride of every block."""
    plan, before = [], 32
    for expansion, channels, repeats, stride in INVERTED:
        for turn in range(repeats):
            plan.append((before, before * expansion, channels, stride if turn == 0 else 1))
            before = channels
    return plan


def mobilenet_shapes() -> Shapes:
    """MobileNetV2's weights."""
    blocks = [
        {
            "up": spec(1, 1, a, h),
            "n1": norm(h),
            "dw": spec(3, 3, 1, h),
            "n2": norm(h),
            "down": spec(1, 1, h, o),
            "n3": norm(o),
        }
        for a, h, o, _ in mobilenet_plan()
    ]
    return {
        "stem": spec(3, 3, 3, 32),
        "n": norm(32),
        "blocks": blocks,
        "last": spec(1, 1, 320, 1280),
        "nl": norm(1280),
        "head": spec(1280, 1000),
    }


def mobilenet(params: Any, x: Any, *, training: bool) -> Any:
    """MobileNetV2: images to logits."""
    normed = batch_norm if training else folded_norm
    relu6 = lambda v: jnp.clip(v, 0, 6)  # noqa: E731
    x = relu6(normed(conv(x, params["stem"], 2), params["n"]))
    for (a, h, o, stride), block in zip(mobilenet_plan(), params["blocks"], strict=True):
        y = relu6(normed(conv(x, block["up"]), block["n1"])) if h != a else x
        y = relu6(normed(conv(y, block["dw"], stride, groups=h), block["n2"]))
        y = normed(conv(y, block["down"]), block["n3"])
        x = x + y if stride == 1 and a == o else y
    x = relu6(normed(conv(x, params["last"]), params["nl"]))
    return x.mean((1, 2)) @ params["head"]


def densenet_shapes(growth: int = 32, depths: tuple[int, ...] = (6, 12, 24, 16)) -> Shapes:
    """DenseNet-121's weights."""
    channels, stages = 64, []
    for number, depth in enumerate(depths):
        layers = []
        for _ in range(depth):
            layers.append(
                {
                    "n1": norm(channels),
                    "c1": spec(1, 1, channels, 4 * growth),
                    "n2": norm(4 * growth),
                    "c2": spec(3, 3, 4 * growth, growth),
                }
            )
            channels += growth
        after = {"n": norm(channels), "c": spec(1, 1, channels, channels // 2)} if number + 1 < len(depths) else None
        stages.append({"layers": layers, "after": after})
        channels = channels // 2 if after else channels
    return {
        "stem": spec(7, 7, 3, 64),
        "n": norm(64),
        "stages": stages,
        "nl": norm(channels),
        "head": spec(channels, 1000),
    }


def densenet(params: Any, x: Any, *, training: bool) -> Any:
    """DenseNet: every layer reads all before it."""
    normed = batch_norm if training else folded_norm
    x = jax.nn.relu(normed(conv(x, params["stem"], 2), params["n"]))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage in params["stages"]:
        for layer in stage["layers"]:
            y = conv(jax.nn.relu(normed(x, layer["n1"])), layer["c1"])
            y = conv(jax.nn.relu(normed(y, layer["n2"])), layer["c2"])
            x = jnp.concatenate([x, y], -1)
        if stage["after"] is not None:
            x = conv(jax.nn.relu(normed(x, stage["after"]["n"])), stage["after"]["c"])
            x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return jax.nn.relu(normed(x, params["nl"])).mean((1, 2)) @ params["head"]


def mixer_shapes(layers: int = 12, tokens: int = 196, dim: int = 768) -> Shapes:
    """MLP-Mixer B/16's weights, layers stacked."""
    stacked = lambda *sizes: spec(layers, *sizes)  # noqa: E731
    return {
        "patch": spec(16, 16, 3, dim), "head": spec(dim, 1000), "n": norm(dim),
        "layers": {
            "n1": {"scale": stacked(dim), "bias": stacked(dim)}, "n2": {"scale": stacked(dim), "bias": stacked(dim)},
            "t1": stacked(tokens, 384), "t2": stacked(384, tokens), "c1": stacked(dim, 3072), "c2": stacked(3072, dim),
        },
    }  # fmt: skip


def mixer(params: Any, x: Any, *, training: bool) -> Any:
    """MLP-Mixer: products along tokens and along channels, layers in a scan."""
    x = conv(x, params["patch"].astype(x.dtype), 16, padding="VALID").reshape(x.shape[0], -1, params["patch"].shape[-1])

    def layer(x: Any, p: Any) -> tuple[Any, None]:
        y = jnp.swapaxes(layer_norm(x, p["n1"]), 1, 2)
        x = x + jnp.swapaxes(jax.nn.gelu(y @ p["t1"]) @ p["t2"], 1, 2)
        return x + jax.nn.gelu(layer_norm(x, p["n2"]) @ p["c1"]) @ p["c2"], None

    x, _ = lax.scan(layer, x, params["layers"])
    return layer_norm(x, params["n"]).mean(1) @ params["head"]


for name, apply, shapes, cases in (
    ("convnext_t", convnext, convnext_shapes, (("infer", "bf16", 64), ("train", "f32", 16))),
    ("mobilenetv2", mobilenet, mobilenet_shapes, (("infer", "f32", 64), ("train", "bf16", 64))),
    ("densenet121", densenet, densenet_shapes, (("infer", "bf16", 32), ("train", "f32", 16))),
    ("mixer_b16", mixer, mixer_shapes, (("train", "bf16", 64), ("infer", "f16", 64))),
):
    for mode, dtype, batch in cases:
        narrow = {"bf16": BF16, "f16": F16, "f32": jnp.float32}[dtype]
        IMAGES.add(
            f"plain_{name}_{mode}_b{batch}",
            lambda apply=apply, shapes=shapes, batch=batch, mode=mode, narrow=narrow: classified(
                apply, shapes(), (batch, 224, 224, 3), mode, narrow, sgd=apply is not convnext
            ),
            mode,
            dtype,
        )


def segmenter_shapes(widths: tuple[int, ...] = (64, 128, 256, 512)) -> Shapes:
    """The weights of a U-Net with two convolutions a level."""
    down = [{"a": spec(3, 3, a, b), "b": spec(3, 3, b, b)} for a, b in zip((3, *widths), widths, strict=False)]
    up = [
        {"t": spec(2, 2, b, a), "a": spec(3, 3, 2 * a, a), "b": spec(3, 3, a, a)}
        for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)
    ]
    return {"down": down, "up": up, "last": spec(1, 1, widths[0], 2)}


@IMAGES.program("plain_segmenter_train_b8", "train", "bf16")
def _() -> Call:
    def apply(params: Any, x: Any) -> Any:
        kept = []
        for level, p in enumerate(params["down"]):
            x = x if level == 0 else lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            x = jax.nn.relu(conv(jax.nn.relu(conv(x, p["a"])), p["b"]))
            kept.append(x)
        for p, beside in zip(params["up"], kept[-2::-1], strict=True):
            x = lax.conv_transpose(x, p["t"], (2, 2), "SAME", dimension_numbers=NHWC)
            x = jnp.concatenate([beside, x], -1)
            x = jax.nn.relu(conv(jax.nn.relu(conv(x, p["a"])), p["b"]))
        return conv(x, params["last"])

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return cross_entropy(apply(params, x), labels)

    data = (spec(8, 256, 256, 3, dtype=BF16), integers(2, 8, 256, 256))
    return training(mixed(loss), segmenter_shapes(), data, optax.adam(1e-3))


@IMAGES.program("plain_vae_train_b256", "train", "f32")
def _() -> Call:
    widths = (32, 64, 128, 256)

    def loss(params: Any, x: Any, noise: Any) -> Any:
        y = x
        for w in params["down"]:
            y = jax.nn.leaky_relu(conv(y, w, 2))
        y = y.reshape(y.shape[0], -1) @ params["code"]
        mean, log_var = jnp.split(y, 2, -1)
        z = (mean + noise * jnp.exp(0.5 * log_var)) @ params["decode"]
        y = z.reshape(-1, 4, 4, widths[-1])
        for number, w in enumerate(params["up"]):
            y = lax.conv_transpose(y, w, (2, 2), "SAME", dimension_numbers=NHWC)
            y = y if number + 1 == len(params["up"]) else jax.nn.leaky_relu(y)
        kl = -0.5 * jnp.sum(1 + log_var - mean**2 - jnp.exp(log_var), -1)
        return (jnp.sum((jax.nn.sigmoid(y) - x) ** 2, (1, 2, 3)) + kl).mean()

    params = {
        "down": [spec(3, 3, a, b) for a, b in zip((3, *widths), widths, strict=False)],
        "up": [spec(3, 3, a, b) for a, b in zip(widths[::-1], (*widths[-2::-1], 3), strict=True)],
        "code": spec(4 * 4 * 256, 256), "decode": spec(128, 4 * 4 * 256),
    }  # fmt: skip
    return training(loss, params, (spec(256, 64, 64, 3), spec(256, 128)), optax.adam(1e-3))


@IMAGES.program("plain_int8_convs_infer_b64", "infer", "int8")
def _() -> Call:
    widths = (64, 128, 256, 256)

    def apply(params: Any, x: Any) -> Any:
        for number, p in enumerate(params["convs"]):
            y = lax.conv_general_dilated(
                x,
                p["w"],
                (2, 2) if number % 2 else (1, 1),
                "SAME",
                dimension_numbers=NHWC,
                preferred_element_type=jnp.int32,
            )
            y = jnp.round(jax.nn.relu(y.astype(jnp.float32) * p["scale"] + p["bias"]))
            x = jnp.clip(y, -128, 127).astype(jnp.int8)
        y = jnp.sum(x.astype(jnp.int32), (1, 2)).astype(jnp.float32)
        return y @ params["head"]

    convs = [
        {"w": spec(3, 3, a, b, dtype=jnp.int8), "scale": spec(b), "bias": spec(b)}
        for a, b in zip((32, *widths), widths, strict=False)
    ]
    return apply, ({"convs": convs, "head": spec(256, 100)}, spec(64, 64, 64, 32, dtype=jnp.int8))
