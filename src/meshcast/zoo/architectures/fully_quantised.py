"""The programs of fully quantised networks: a training step in floats, inference in integers, and the way between them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import supervised_program
from meshcast.zoo.layers.low_bit import (
    ClipsFromBatch,
    FakeQuantised,
    IntegerOnly,
    Noise,
    QuantisedArithmetic,
    integer_layer,
)
from meshcast.zoo.program import ModelProgram, jit_options
from meshcast.zoo.shapes.low_bit import LowBitConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data",)
EDGES = ("first", "head")
"""The layers of the edges' width; the first takes what has both signs."""
Network = Callable[[Any, jax.Array, QuantisedArithmetic], jax.Array]
"""`(params, inputs, arithmetic) -> scores`: `{"input", "first", ..., "pool", "head"}`, whatever the network is between."""


def unit(inputs: int, outputs: int, *window: int) -> dict[str, ShardedWeight]:
    """A convolution and the quantisers of its weights and of what comes out."""
    scalar = ShardedWeight(())
    return {"kernel": ShardedWeight((*window, inputs, outputs)), "weight_clip": scalar, "clip": scalar}


def edges(first: Any, inputs: int, config: LowBitConfig, dimensions: int) -> dict[str, Any]:
    """What every network has around its layers: the input's quantiser, the first layer, the pool's quantiser, the head."""
    head = unit(inputs, config.classes, *(1,) * dimensions)
    del head["clip"]  # scores are not quantised
    scalar = ShardedWeight(())
    return {"input": {"clip": scalar}, "first": first, "pool": {"clip": scalar}, "head": head}


def scored(x: Any, params: Any, arithmetic: QuantisedArithmetic) -> jax.Array:
    """Scores of what the last layer gives: its mean over positions, by the head."""
    pooled = arithmetic.activated([arithmetic.pooled(x)], params["pool"], edge=True)
    scores = arithmetic.convolved(pooled, params["head"], edge=True)
    values = scores.values.astype(jnp.float32)
    values = values * scores.step if isinstance(arithmetic, IntegerOnly) else values
    return values.reshape(values.shape[0], -1)


def start(weights: Any, network: Network, config: LowBitConfig, inputs: jax.Array, key: jax.Array) -> Any:
    """Parameters to train from: He's weights (2015), clips from what a first batch shows."""
    leaves, tree = jax.tree.flatten(weights, is_leaf=lambda each: isinstance(each, ShardedWeight))
    keys = jax.random.split(key, len(leaves))
    made = [
        jax.random.normal(k, leaf.shape) * (2.0 / max(1, _fan_in(leaf.shape))) ** 0.5
        if leaf.shape
        else jnp.zeros(leaf.shape)
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return with_clips(jax.tree.unflatten(tree, made), network, config, inputs)


def with_clips(params: Any, network: Network, config: LowBitConfig, inputs: jax.Array) -> Any:
    """Parameters with clips set from what a batch shows, for the widths of a configuration."""
    params = copy.deepcopy(params)
    network(params, inputs, ClipsFromBatch(config))
    return params


def integers(params: Any, config: LowBitConfig, held_in: DTypeLike | None = None) -> Any:
    """Trained parameters as integer inference takes them."""
    half = -(2 ** (config.activation_bits - 1))
    wide = -(2 ** (config.edge_bits - 1))

    def converted(tree: Any, name: str) -> Any:
        if isinstance(tree, list):
            return [converted(each, name) for each in tree]
        if isinstance(tree, dict) and "clip" not in tree and "kernel" not in tree:
            return {key: converted(each, key) for key, each in tree.items()}
        found: dict[str, jax.Array] = {}
        if "kernel" in tree:
            zero = {"first": 0, "head": wide}.get(name, half)
            found |= integer_layer(tree, config, edge=name in EDGES, zero=zero, held_in=held_in)
        if "clip" in tree:
            bits = config.edge_bits if name in ("input", "pool") else config.activation_bits
            steps = 2 ** (bits - 1) - 1 if name == "input" else 2**bits - 1
            found["step"] = jnp.exp(tree["clip"].astype(jnp.float32)) / steps
        return found

    return converted(params, "")


def low_bit_programs(
    weights: Callable[[Any], Any],
    network_of: Callable[[Any], Network],
    sample: Callable[[Any], tuple[int, ...]],
    *,
    batch: int,
) -> tuple[Callable[..., ModelProgram], Callable[..., ModelProgram]]:
    """A family's `train_step` and `forward`.

    Args:
        weights: Shapes of a configuration's parameters.
        network_of: Its network.
        sample: The shape of one of its inputs.
        batch: Samples of a training step where nobody says; inference has one.
    """

    def train_step(
        config: Any,
        *,
        mesh: Mapping[str, int] | None = None,
        batch: int = batch,
        accumulate: int = 1,
        weight_noise: float = 0.0,
        activation_noise: float = 0.0,
        converter_noise: float = 0.0,
        param_dtype: DTypeLike = "float32",
        compute_dtype: DTypeLike = "float32",
    ) -> ModelProgram:
        """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
        noise = Noise.within(config, weights=weight_noise, activations=activation_noise, converter=converter_noise)
        return _training(
            config, weights(config), network_of(config), sample(config), mesh=mesh, batch=batch, accumulate=accumulate,
            noise=noise, param_dtype=param_dtype, compute_dtype=compute_dtype,
        )  # fmt: skip

    def forward(
        config: Any,
        *,
        mesh: Mapping[str, int] | None = None,
        batch: int = 1,
        weight_noise: float = 0.0,
        activation_noise: float = 0.0,
        converter_noise: float = 0.0,
    ) -> ModelProgram:
        """Classification in integers: `(params, batch) -> class scores`."""
        noise = Noise.within(config, weights=weight_noise, activations=activation_noise, converter=converter_noise)
        return _inference(
            config, weights(config), network_of(config), sample(config), mesh=mesh, batch=batch, noise=noise
        )

    return train_step, forward


def _training(
    config: LowBitConfig,
    weights: Any,
    network: Network,
    sample: tuple[int, ...],
    *,
    mesh: Mapping[str, int] | None,
    batch: int,
    accumulate: int,
    noise: Noise,
    param_dtype: DTypeLike,
    compute_dtype: DTypeLike,
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`, noise drawn from the batch's seeds."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def score(params: Any, batch: Any) -> jax.Array:
        x = layout.constrain(batch["inputs"].astype(compute_dtype), "data")
        return network(params, x, FakeQuantised(config, noise=noise, key=_key(batch)))

    fields: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
        "inputs": ((batch, *sample), jnp.float32),
        "labels": ((batch,), jnp.int32),
    }
    return supervised_program(
        layout, weights, score, fields | (_seeds(batch) if noise else {}), labels="labels", accumulate=accumulate, zero=0,
        param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def _inference(
    config: LowBitConfig,
    weights: Any,
    network: Network,
    sample: tuple[int, ...],
    *,
    mesh: Mapping[str, int] | None,
    batch: int,
    noise: Noise,
) -> ModelProgram:
    """Classification in integers: `(params, batch) -> class scores`."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def forward(params: Any, batch: Any) -> jax.Array:
        x = layout.constrain(batch["inputs"], "data")
        return network(params, x, IntegerOnly(config, noise=noise, key=_key(batch)))

    trained = jax.tree.map(
        lambda weight: jax.ShapeDtypeStruct(weight.shape, jnp.float32),
        weights, is_leaf=lambda each: isinstance(each, ShardedWeight),
    )  # fmt: skip
    shapes = jax.eval_shape(lambda params: integers(params, config), trained)
    params = jax.tree.map(lambda leaf: layout.struct(leaf.shape, leaf.dtype), shapes)
    data = {"inputs": layout.struct((batch, *sample), jnp.float32, "data")}
    if noise:
        data["seeds"] = layout.struct((batch,), jnp.uint32, "data")
    result = layout.struct((batch, config.classes), jnp.float32, "data")
    return forward, (params, data), jit_options(layout, donate=(), results=result)


def _key(batch: Any) -> jax.Array | None:
    return jax.random.key(jnp.sum(batch["seeds"])) if "seeds" in batch else None


def _seeds(batch: int) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
    return {"seeds": ((batch,), jnp.uint32)}


def _fan_in(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape[:-1]:
        product *= size
    return product
