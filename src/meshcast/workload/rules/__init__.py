"""Cost rules for every op of StableHLO and CHLO: what one op computes and moves, before any fusion.

Each op name is in exactly one of three places: `RULES` (it has a cost), `STRUCTURAL` (the reader handles it: control
flow, calls, communication, custom calls) or `REFUSED` (with the reason the user is told).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any

from meshcast.workload.graph import Cost
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules import (
    convolution,
    costs,
    elementwise,
    gemm,
    indexing,
    linalg,
    movement,
    normalisation,
    ragged,
    reduction,
    regions,
    rng,
    sorting,
)
from meshcast.workload.rules.costs import generated

_TOPICS = (
    elementwise, movement, gemm, ragged, convolution, reduction, indexing, sorting, linalg, rng, normalisation,
)  # fmt: skip


def _or_nothing(rule: Rule) -> Rule:
    """The rule, but no work for an op whose results have no elements: XLA puts a constant in its place."""

    def cost(reading: OpReading) -> Cost:
        for result in reading.results:
            if result.elements:
                return rule(reading)
        return generated(reading) if reading.results else rule(reading)

    return cost


RULES: Mapping[str, Rule] = MappingProxyType(
    {name: _or_nothing(rule) for topic in _TOPICS for name, rule in topic.RULES.items()}
)

# Ops whose cost follows from their types and these attributes alone, the most frequent ones of programs: equal ones need to be
# worked out once.
COSTED_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys((*elementwise.BY_TYPES, "stablehlo.constant", "stablehlo.reshape"), ()),
        "stablehlo.iota": ("iota_dimension",),
        "stablehlo.broadcast_in_dim": ("broadcast_dimensions",),
        "stablehlo.dot_general": ("dot_dimension_numbers", "precision_config", "algorithm", "meshcast.layouts"),
        "stablehlo.dynamic_slice": (),
        "stablehlo.dynamic_update_slice": (),
        "stablehlo.reduce": ("dimensions", "meshcast.layouts"),
    }
)

# The same of ops that shift data: of a program that is shared out they may also have to exchange some (`collectives.implied`).
COSTED_WHOLE_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "stablehlo.concatenate": (),
        "stablehlo.convolution": (
            "dimension_numbers", "window_strides", "padding", "lhs_dilation", "rhs_dilation", "precision_config", "algorithm",
        ),
        "stablehlo.pad": (),
        "stablehlo.reverse": (),
        "stablehlo.slice": ("start_indices", "strides"),
    }
)  # fmt: skip

# What the cost of some of them depends on beside; where an op gives None, on more.
COSTED_ALSO_BY: Mapping[str, Callable[[Any], Hashable]] = MappingProxyType(
    {
        "stablehlo.dynamic_slice": costs.takes_whole,
        "stablehlo.pad": lambda op: (movement.pads_nothing(op), movement.around(op)),
        "stablehlo.reduce": regions.plain_body,
        "stablehlo.slice": costs.takes_whole,
    }
)

# Ops that a composite of the same name costs as much as: their rules need nothing that a composite does not carry. Others
# (`chlo.scan`, whose work is in its region) are read through the composite's decomposition.
COMPOSITES: frozenset[str] = frozenset(name for name in RULES if name.startswith("chlo.") and name != "chlo.scan")

STRUCTURAL: frozenset[str] = frozenset(
    {
        "func.call",
        *(f"stablehlo.{name}" for name in ("while", "case", "if", "composite", "return", "custom_call")),
        *(f"stablehlo.{name}" for name in ("async_start", "async_done", "send", "recv")),
        *(f"stablehlo.{name}" for name in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")),
        *(f"stablehlo.collective_{name}" for name in ("broadcast", "permute", "reduce")),
    }
)

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "stablehlo.cross-replica-sum": "it is deprecated and names no channel; write it as stablehlo.all_reduce",
    }
)

__all__ = ["COMPOSITES", "COSTED_ALSO_BY", "COSTED_BY", "COSTED_WHOLE_BY", "REFUSED", "RULES", "STRUCTURAL"]
