"""A U-Net over volumes (Çiçek 2016; Isensee 2021): NDHWC, instance norms, SGD, data-parallel.

At every resolution two convolutions of 3^3 with norms and ReLUs, the first of a coarser one with a stride of two; on the way back
voxels are doubled by a transposed convolution of 2^3 and stand beside what was left on the way. The loss is Dice's and the
cross-entropy, half each, as MLPerf's reference has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.layers.image_layers import Normalise, convolution, images_forward, sgd_program, unit_weights
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.volumes import VolumeConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

_UNIT = partial(unit_weights, 3, spatial=3)


def weights(config: VolumeConfig) -> dict[str, Any]:
    """Every parameter's shape; replicated, as data parallelism has it."""
    down, up = [], []
    for inputs, outputs in pairwise((config.channels, *config.widths)):
        down.append([_UNIT(inputs, outputs), _UNIT(outputs, outputs)])
    for coarse, fine in pairwise(reversed(config.widths)):
        up.append(
            {
                "double": {
                    "kernel": ShardedWeight((2, 2, 2, coarse, fine)),
                    "offset": ShardedWeight((fine,)),
                },
                "units": [_UNIT(2 * fine, fine), _UNIT(fine, fine)],
            }
        )
    head = {
        "kernel": ShardedWeight((1, 1, 1, config.widths[0], config.classes)),
        "offset": ShardedWeight((config.classes,)),
    }
    return {"down": down, "up": up, "head": head}


def instance_norm(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """Normalised (B, D, H, W, channels) over the voxels of each channel of each volume, computed in fp32."""
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=(1, 2, 3), keepdims=True)
    variance = jnp.mean(jnp.square(wide), axis=(1, 2, 3), keepdims=True) - jnp.square(mean)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype) * w["scale"] + w["bias"]


def doubled(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """A transposed convolution of 2^3 and stride two, whose filters do not overlap: a product, and voxels in their places."""
    made = jnp.einsum("bdhwc,ijkce->bdihjwke", x, w["kernel"])
    sides = (2 * side for side in x.shape[1:4])
    return made.reshape(x.shape[0], *sides, -1) + w["offset"]


def network(
    params: dict[str, Any], images: jax.Array, layout: MeshLayout, normalise: Normalise, *, config: VolumeConfig
) -> tuple[jax.Array, list[Any]]:
    """Classes (B, D, H, W, classes) of every voxel; instance norms keep no statistics."""
    del normalise, config

    def unit(x: jax.Array, w: dict[str, jax.Array], stride: int = 1) -> jax.Array:
        return jax.nn.relu(instance_norm(layout.constrain(convolution(x, w, stride), "data"), w))

    x, left = images, []
    for place, (first, second) in enumerate(params["down"]):
        x = unit(unit(x, first, 2 if place else 1), second)
        left.append(x)
    left.pop()
    for stage in params["up"]:
        x = jnp.concatenate([doubled(x, stage["double"]), left.pop()], axis=-1)
        for w in stage["units"]:
            x = unit(x, w)
    return convolution(x, params["head"], 1) + params["head"]["offset"], []


def dice_and_entropy(found: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    """Half of 1 - 2 sum(p t) / (sum p + sum t), mean over classes, and half of the mean cross-entropy."""
    scores = jax.nn.log_softmax(found.astype(jnp.float32), axis=-1)
    shares, wanted = jnp.exp(scores), jax.nn.one_hot(batch["labels"], found.shape[-1], dtype=jnp.float32)
    voxels = (1, 2, 3)
    both = jnp.sum(shares * wanted, axis=voxels)
    either = jnp.sum(shares, axis=voxels) + jnp.sum(wanted, axis=voxels)
    return 0.5 * jnp.mean(1 - 2 * both / jnp.maximum(either, 1e-6)) - 0.5 * jnp.mean(jnp.sum(scores * wanted, axis=-1))


def train_step(
    config: VolumeConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 2,
    accumulate: int = 1,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One SGD step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    cube = (batch, config.image, config.image, config.image)
    fields = {"images": ((*cube, config.channels), jnp.float32), "labels": (cube, jnp.int32)}
    return sgd_program(
        weights(config), partial(network, config=config), dice_and_entropy, fields, mesh=mesh, accumulate=accumulate,
        sync_batch_norm=False, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: VolumeConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 2,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Segmentation: `(params, batch) -> classes of voxels`."""
    image = (config.image, config.image, config.image, config.channels)
    return images_forward(
        weights(config), partial(network, config=config), image, mesh=mesh, batch=batch, param_dtype=param_dtype
    )
