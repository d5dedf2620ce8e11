"""ResNet (He 2016, stride on the 3x3 as in v1.5) and its kin, NHWC, batch norm in training mode, SGD, data-parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.layers import cast, cross_entropy
from meshcast.zoo.optimizers import sgd, sgd_state
from meshcast.zoo.program import ModelProgram, jit_options, mean_with_extras, microbatched
from meshcast.zoo.shapes.resnet import ResnetConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data",)
Normalise = Callable[[jax.Array, dict[str, jax.Array]], tuple[jax.Array, Any]]


def _unit(kernel: int, inputs: int, outputs: int) -> dict[str, ShardedWeight]:
    """A convolution and its batch norm."""
    return {
        "kernel": ShardedWeight((kernel, kernel, inputs, outputs)),
        "scale": ShardedWeight((outputs,)),
        "bias": ShardedWeight((outputs,)),
    }


def _squeeze(channels: int, narrow: int) -> dict[str, ShardedWeight]:
    """The two layers that make of the means of channels what these are multiplied by."""
    return {
        "narrow": ShardedWeight((channels, narrow)),
        "narrow_bias": ShardedWeight((narrow,)),
        "wide": ShardedWeight((narrow, channels)),
        "wide_bias": ShardedWeight((channels,)),
    }


def weights(config: ResnetConfig) -> dict[str, Any]:
    """Every parameter's shape; replicated, as data parallelism has it."""
    inputs = config.width
    stages = []
    for stage, count in enumerate(config.blocks):
        width, outputs = config.inner(stage), config.outputs(stage)
        blocks = []
        for _ in range(count):
            kernels = [(3, inputs, width), (3, width, width)]
            if config.bottleneck:
                kernels = [(1, inputs, width), (3, width // config.groups, width), (1, width, outputs)]
            block: dict[str, Any] = {"units": [_unit(*kernel) for kernel in kernels]}
            block |= {"squeeze": _squeeze(outputs, outputs // config.squeeze)} if config.squeeze else {}
            blocks.append(block | ({"shortcut": _unit(1, inputs, outputs)} if inputs != outputs else {}))
            inputs = outputs
        stages.append(blocks)
    head = {"kernel": ShardedWeight((inputs, config.classes)), "bias": ShardedWeight((config.classes,))}
    return {"stem": _unit(7, 3, config.width), "stages": stages, "head": head}


def convolution(x: jax.Array, w: dict[str, jax.Array], stride: int) -> jax.Array:
    """A convolution with the symmetric padding of the published model; in groups where a filter sees a part of the channels."""
    pad = w["kernel"].shape[0] // 2
    return jax.lax.conv_general_dilated(
        x, w["kernel"], (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // w["kernel"].shape[2],
    )  # fmt: skip


def excited(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """Channels weighed by what two small layers make of their means (Hu 2018, section 3)."""
    means = jnp.mean(x, axis=(1, 2))
    narrow = jax.nn.relu(means @ w["narrow"] + w["narrow_bias"])
    weighed = x * jax.nn.sigmoid(narrow @ w["wide"] + w["wide_bias"])[:, None, None, :]
    return weighed.astype(x.dtype)


def batch_norm(x: jax.Array, w: dict[str, jax.Array], groups: int) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Activations normalised by the statistics of each of `groups` equal parts of the batch, and their mean statistics.

    One group is synchronised batch norm. One group per data shard is what a replica computes on its own, as torch's
    DDP does: only the running statistics are then reduced over the mesh.
    """
    wide = x.astype(jnp.float32).reshape(groups, -1, *x.shape[1:])
    mean = jnp.mean(wide, axis=(1, 2, 3), keepdims=True)
    variance = jnp.mean(jnp.square(wide), axis=(1, 2, 3), keepdims=True) - jnp.square(mean)
    scaled = ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape).astype(x.dtype) * w["scale"] + w["bias"]
    return scaled, {"mean": jnp.mean(mean, axis=(0, 1, 2, 3)), "variance": jnp.mean(variance, axis=(0, 1, 2, 3))}


def fixed_norm(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
    """Activations normalised by running statistics."""
    scale = w["scale"] * jax.lax.rsqrt(w["variance"] + jnp.asarray(1e-5, w["variance"].dtype))
    return (x - w["mean"]) * scale + w["bias"], None


def _with_statistics(tree: Any) -> Any:
    """The weights, and the running statistics of every normalisation beside its scale."""
    if isinstance(tree, list):
        return [_with_statistics(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    found = {name: _with_statistics(each) for name, each in tree.items()}
    return found | ({name: tree["scale"] for name in ("mean", "variance")} if "scale" in tree else {})


def network(
    params: dict[str, Any], images: jax.Array, *, config: ResnetConfig, layout: MeshLayout, normalise: Normalise
) -> tuple[Any, Any]:
    """Logits, and what every normalisation saw, in order."""
    statistics = []

    def unit(x: jax.Array, w: dict[str, jax.Array], stride: int) -> jax.Array:
        x, seen = normalise(layout.constrain(convolution(x, w, stride), "data"), w)
        statistics.append(seen)
        return x

    x = jax.nn.relu(unit(images, params["stem"], 2))
    window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for stage, blocks in enumerate(params["stages"]):
        for index, block in enumerate(blocks):
            stride = 2 if stage and not index else 1
            strided = 1 if config.bottleneck else 0
            h = x
            for position, w in enumerate(block["units"]):
                h = unit(h, w, stride if position == strided else 1)
                h = jax.nn.relu(h) if position < len(block["units"]) - 1 else h
            h = excited(h, block["squeeze"]) if "squeeze" in block else h
            x = jax.nn.relu(h + (unit(x, block["shortcut"], stride) if "shortcut" in block else x))
    x = jnp.mean(x, axis=(1, 2))
    return x @ params["head"]["kernel"] + params["head"]["bias"], statistics


def train_step(
    config: ResnetConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    accumulate: int = 1,
    sync_batch_norm: bool = False,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One SGD step: `(params, opt_state, batch) -> (params, opt_state, loss)`.

    The optimizer state is what the step carries beside the weights: the momentum and the running statistics. Microbatches
    have statistics of their own; where a replica's are its own too, gradients are reduced once a step.
    """
    layout = MeshLayout.of(mesh, axes=AXES)
    apart = accumulate > 1 and layout.size("data") > 1 and not sync_batch_norm
    groups = 1 if sync_batch_norm or apart else layout.size("data")

    def loss(params: Any, batch: Any) -> tuple[jax.Array, Any]:
        images = batch["images"].astype(compute_dtype)
        norm = partial(batch_norm, groups=groups)
        logits, seen = network(cast(params, compute_dtype), images, config=config, layout=layout, normalise=norm)
        return cross_entropy(logits, batch["labels"]), seen

    def train_step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        (value, seen), grads = mean_with_extras(layout, loss, params, batch, accumulate=accumulate, apart=apart)
        params, momentum = sgd(params, grads, opt_state["momentum"], weight_decay=5e-5)
        running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, opt_state["statistics"], seen)
        return params, {"momentum": momentum, "statistics": running}, value

    params = layout.params(weights(config), param_dtype)
    images, labels = ((batch, config.image, config.image, 3), jnp.float32), ((batch,), jnp.int32)
    data = microbatched(layout, accumulate, images=images, labels=labels)
    # Of every normalisation a mean and a variance, in the order of the network; groups and rows do not matter.
    sample = {
        "images": jax.ShapeDtypeStruct((groups, *images[0][1:]), images[1]),
        "labels": jax.ShapeDtypeStruct((groups,), labels[1]),
    }
    _, statistics = jax.eval_shape(loss, params, sample)
    replicated = jax.tree.map(lambda leaf: layout.struct(leaf.shape, leaf.dtype), statistics)
    opt_state = {"momentum": sgd_state(params), "statistics": replicated}
    results = (params, opt_state, layout.struct((), jnp.float32))
    return train_step, (params, opt_state, data), jit_options(layout, donate=(0, 1), results=results)


def forward(
    config: ResnetConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Classification: `(params, batch) -> class scores`, normalised by running statistics that are parameters here."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def forward(params: Any, batch: Any) -> jax.Array:
        scores: jax.Array
        scores, _ = network(params, batch["images"], config=config, layout=layout, normalise=fixed_norm)
        return scores

    params = layout.params(_with_statistics(weights(config)), param_dtype)
    data = {"images": layout.struct((batch, config.image, config.image, 3), param_dtype, "data")}
    result = layout.struct((batch, config.classes), param_dtype, "data")
    return forward, (params, data), jit_options(layout, donate=(), results=result)
