"""Fully quantised ResNets for CIFAR's images (He 2016, section 4.2; after FQ-Conv, Verhoef 2019), NHWC, data-parallel.

A block's second convolution and its shortcut are added as sums, before one quantiser makes codes of them.
"""

from __future__ import annotations

from typing import Any

import jax

from meshcast.zoo.architectures.fully_quantised import edges, low_bit_programs, scored, unit
from meshcast.zoo.layers.low_bit import QuantisedArithmetic
from meshcast.zoo.shapes.low_bit import CifarConfig

STAGES, CHANNELS = 3, 3


def weights(config: CifarConfig) -> dict[str, Any]:
    """Every parameter's shape."""
    inputs = config.width
    stages = []
    for stage in range(STAGES):
        width = config.width * 2**stage
        blocks = []
        for _ in range(config.blocks):
            block = {"inner": unit(inputs, width, 3, 3), "outer": unit(width, width, 3, 3)}
            shortcut = unit(inputs, width, 1, 1)
            del shortcut["clip"]  # its sums are added to others before they are quantised
            blocks.append(block | ({"shortcut": shortcut} if inputs != width else {}))
            inputs = width
        stages.append(blocks)
    return edges(unit(CHANNELS, config.width, 3, 3), inputs, config, 2) | {"stages": stages}


def network_of(config: CifarConfig) -> Any:
    """The network: `(params, inputs, arithmetic) -> scores`."""

    def network(params: Any, inputs: jax.Array, arithmetic: QuantisedArithmetic) -> jax.Array:
        x = arithmetic.entered(inputs, params["input"])
        x = arithmetic.activated([arithmetic.convolved(x, params["first"], edge=True)], params["first"])
        for stage, blocks in enumerate(params["stages"]):
            for index, block in enumerate(blocks):
                stride = 2 if stage and not index else 1
                h = arithmetic.activated([arithmetic.convolved(x, block["inner"], stride=stride)], block["inner"])
                h = arithmetic.convolved(h, block["outer"])
                shortcut = block.get("shortcut")
                x = x if shortcut is None else arithmetic.convolved(x, shortcut, stride=stride)
                x = arithmetic.activated([h, x], block["outer"])
        return scored(x, params, arithmetic)

    return network


train_step, forward = low_bit_programs(
    weights, network_of, lambda config: (config.image, config.image, CHANNELS), batch=128
)
