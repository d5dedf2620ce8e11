"""Keyword spotting by fully quantised dilated convolutions over time (after FQ-Conv, Verhoef 2019), data-parallel.

Every frame's coefficients are embedded by one layer of the edges' width; convolutions over time of growing dilation follow, each
from codes to codes; the mean over all frames is classified.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import jax
from jax.typing import DTypeLike

from meshcast.zoo.fully_quantised import edges, inference, scored, training, unit
from meshcast.zoo.low_bit import Noise, QuantisedArithmetic
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.low_bit import KeywordConfig

WINDOW = 3


def weights(config: KeywordConfig) -> dict[str, Any]:
    """Every parameter's shape."""
    widths = [config.embedding, *(config.filters for _ in config.dilations)]
    layers = [unit(inputs, outputs, WINDOW) for inputs, outputs in itertools.pairwise(widths)]
    return edges(unit(config.coefficients, config.embedding, 1), widths[-1], config, 1) | {"layers": layers}


def network_of(config: KeywordConfig) -> Any:
    """The network: `(params, inputs, arithmetic) -> scores`."""

    def network(params: Any, inputs: jax.Array, arithmetic: QuantisedArithmetic) -> jax.Array:
        x = arithmetic.entered(inputs, params["input"])
        x = arithmetic.left([arithmetic.convolved(x, params["first"], edge=True)], params["first"])
        for w, dilation in zip(params["layers"], config.dilations, strict=True):
            x = arithmetic.left([arithmetic.convolved(x, w, dilation=dilation)], w)
        return scored(x, params, arithmetic)

    return network


def train_step(
    config: KeywordConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    accumulate: int = 1,
    weight_noise: float = 0.0,
    activation_noise: float = 0.0,
    converter_noise: float = 0.0,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "float32",
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    return training(
        config, weights(config), network_of(config), (config.frames, config.coefficients), mesh=mesh, batch=batch,
        accumulate=accumulate, param_dtype=param_dtype, compute_dtype=compute_dtype,
        noise=Noise(weights=weight_noise, activations=activation_noise, converter=converter_noise),
    )  # fmt: skip


def forward(
    config: KeywordConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 1,
    weight_noise: float = 0.0,
    activation_noise: float = 0.0,
    converter_noise: float = 0.0,
) -> ModelProgram:
    """Classification in integers: `(params, batch) -> class scores`."""
    return inference(
        config, weights(config), network_of(config), (config.frames, config.coefficients), mesh=mesh, batch=batch,
        noise=Noise(weights=weight_noise, activations=activation_noise, converter=converter_noise),
    )  # fmt: skip
