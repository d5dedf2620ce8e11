"""What models of images share: convolutions and batch norms, channels last, and their data-parallel step of SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import Fields
from meshcast.zoo.layers.pieces import cast, cross_entropy
from meshcast.zoo.optimizers import sgd, sgd_state
from meshcast.zoo.program import ModelProgram, jit_options, mean_with_extras, microbatched
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data",)
Normalise = Callable[[jax.Array, dict[str, jax.Array]], tuple[jax.Array, Any]]
Network = Callable[[Any, jax.Array, MeshLayout, Normalise], tuple[Any, Any]]
"""`(params, images, layout, normalise) -> results, and what every normalisation saw, in order`."""
Loss = Callable[[Any, Any], jax.Array]
"""`(results, batch) -> loss`."""
_SPATIAL = "DHW"


def unit_weights(kernel: int, inputs: int, outputs: int, *, spatial: int = 2) -> dict[str, ShardedWeight]:
    """A convolution and its norm."""
    return {
        "kernel": ShardedWeight((*(kernel,) * spatial, inputs, outputs)),
        "scale": ShardedWeight((outputs,)),
        "bias": ShardedWeight((outputs,)),
    }


def squeeze_weights(channels: int, narrow: int) -> dict[str, ShardedWeight]:
    """The two layers that make of the means of channels what these are multiplied by."""
    return {
        "narrow": ShardedWeight((channels, narrow)),
        "narrow_bias": ShardedWeight((narrow,)),
        "wide": ShardedWeight((narrow, channels)),
        "wide_bias": ShardedWeight((channels,)),
    }


def convolution(x: jax.Array, w: dict[str, jax.Array], stride: int, *, padded: bool = True) -> jax.Array:
    """A convolution with the symmetric padding of the published model; in groups where a filter sees a part of the channels."""
    kernel = w["kernel"]
    spatial = x.ndim - 2
    named = _SPATIAL[-spatial:]
    pad = kernel.shape[0] // 2 if padded else 0
    return jax.lax.conv_general_dilated(
        x, kernel, (stride,) * spatial, [(pad, pad)] * spatial, dimension_numbers=(f"N{named}C", f"{named}IO", f"N{named}C"),
        feature_group_count=x.shape[-1] // kernel.shape[-2],
    )  # fmt: skip


def excited(
    x: jax.Array, w: dict[str, jax.Array], activation: Callable[[jax.Array], jax.Array] = jax.nn.relu
) -> jax.Array:
    """Channels weighed by what two small layers make of their means (Hu 2018, section 3)."""
    means = jnp.mean(x, axis=(1, 2))
    narrow = activation(means @ w["narrow"] + w["narrow_bias"])
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


class Units:
    """Convolutions with their norms, one after the other; `seen` is what the norms saw."""

    def __init__(self, layout: MeshLayout, normalise: Normalise) -> None:
        self._layout, self._normalise = layout, normalise
        self.seen: list[Any] = []

    def __call__(self, x: jax.Array, w: dict[str, jax.Array], stride: int = 1, *, padded: bool = True) -> jax.Array:
        """A convolution and its norm, without an activation."""
        x, seen = self._normalise(self._layout.constrain(convolution(x, w, stride, padded=padded), "data"), w)
        self.seen.append(seen)
        return x


def with_statistics(tree: Any) -> Any:
    """The weights, and the running statistics of every normalisation beside its scale."""
    if isinstance(tree, list):
        return [with_statistics(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    found = {name: with_statistics(each) for name, each in tree.items()}
    return found | ({name: tree["scale"] for name in ("mean", "variance")} if "scale" in tree else {})


def sgd_program(
    weights: Any,
    network: Network,
    loss_of: Loss,
    fields: Fields,
    *,
    mesh: Mapping[str, int] | None,
    accumulate: int,
    sync_batch_norm: bool,
    param_dtype: DTypeLike,
    compute_dtype: DTypeLike,
) -> ModelProgram:
    """One SGD step: `(params, opt_state, batch) -> (params, opt_state, loss)`; `fields` has `images` and the targets.

    The optimizer state is what the step carries beside the weights: the momentum and the running statistics. Microbatches
    have statistics of their own; where a replica's are its own too, gradients are reduced once a step.
    """
    layout = MeshLayout.of(mesh, axes=AXES)
    apart = accumulate > 1 and layout.size("data") > 1 and not sync_batch_norm
    groups = 1 if sync_batch_norm or apart else layout.size("data")

    def loss(params: Any, batch: Any) -> tuple[jax.Array, Any]:
        images = batch["images"].astype(compute_dtype)
        norm = partial(batch_norm, groups=groups)
        results, seen = network(cast(params, compute_dtype), images, layout, norm)
        return loss_of(results, batch), seen

    def train_step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        (value, seen), grads = mean_with_extras(layout, loss, params, batch, accumulate=accumulate, apart=apart)
        params, momentum = sgd(params, grads, opt_state["momentum"], weight_decay=5e-5)
        running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, opt_state["statistics"], seen)
        return params, {"momentum": momentum, "statistics": running}, value

    params = layout.params(weights, param_dtype)
    data = microbatched(layout, accumulate, **fields)
    # Of every normalisation a mean and a variance, in the order of the network; groups and rows do not matter.
    sample = {name: jax.ShapeDtypeStruct((groups, *shape[1:]), dtype) for name, (shape, dtype) in fields.items()}
    _, statistics = jax.eval_shape(loss, params, sample)
    replicated = jax.tree.map(lambda leaf: layout.struct(leaf.shape, leaf.dtype), statistics)
    opt_state = {"momentum": sgd_state(params), "statistics": replicated}
    results = (params, opt_state, layout.struct((), jnp.float32))
    return train_step, (params, opt_state, data), jit_options(layout, donate=(0, 1), results=results)


def classifier_step(
    weights: Any,
    network: Network,
    image: tuple[int, ...],
    *,
    mesh: Mapping[str, int] | None,
    batch: int,
    accumulate: int,
    sync_batch_norm: bool,
    param_dtype: DTypeLike,
    compute_dtype: DTypeLike,
) -> ModelProgram:
    """The SGD step of a network whose results are the logits of an image's class."""
    return sgd_program(
        weights, network, lambda logits, batch: cross_entropy(logits, batch["labels"]),
        {"images": ((batch, *image), jnp.float32), "labels": ((batch,), jnp.int32)}, mesh=mesh, accumulate=accumulate,
        sync_batch_norm=sync_batch_norm, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def images_forward(
    weights: Any,
    network: Network,
    image: tuple[int, ...],
    *,
    mesh: Mapping[str, int] | None,
    batch: int,
    param_dtype: DTypeLike,
) -> ModelProgram:
    """`(params, batch) -> results`, normalised by running statistics that are parameters here."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def forward(params: Any, batch: Any) -> Any:
        results, _ = network(params, batch["images"], layout, fixed_norm)
        return results

    params = layout.params(with_statistics(weights), param_dtype)
    data = {"images": layout.struct((batch, *image), param_dtype, "data")}
    shapes = jax.eval_shape(forward, params, data)
    results = jax.tree.map(lambda leaf: layout.struct(leaf.shape, leaf.dtype, "data"), shapes)
    return forward, (params, data), jit_options(layout, donate=(), results=results)
