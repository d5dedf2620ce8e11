"""Keyword spotting by fully quantised dilated convolutions over time (after FQ-Conv, Verhoef 2019), data-parallel.

Every frame's coefficients are embedded by one layer of the edges' width; convolutions over time of growing dilation follow, each
from codes to codes; the mean over all frames is classified.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax

from meshcast.zoo.architectures.fully_quantised import edges, low_bit_programs, scored, unit
from meshcast.zoo.layers.low_bit import QuantisedArithmetic
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
        x = arithmetic.activated([arithmetic.convolved(x, params["first"], edge=True)], params["first"])
        for w, dilation in zip(params["layers"], config.dilations, strict=True):
            x = arithmetic.activated([arithmetic.convolved(x, w, dilation=dilation)], w)
        return scored(x, params, arithmetic)

    return network


train_step, forward = low_bit_programs(
    weights, network_of, lambda config: (config.frames, config.coefficients), batch=64
)
