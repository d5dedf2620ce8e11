"""Cost rules for every op of StableHLO and CHLO: what one op computes and moves, before any fusion.

Each op name is in exactly one of three places: `RULES` (it has a cost), `STRUCTURAL` (the reader handles it: control
flow, calls, communication, custom calls) or `REFUSED` (with the reason the user is told).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from meshcast.workload.rule import Rule
from meshcast.workload.rules import (
    convolution,
    elementwise,
    gemm,
    indexing,
    linalg,
    movement,
    normalisation,
    quantised,
    reduction,
    rng,
    sorting,
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **elementwise.RULES,
        **movement.RULES,
        **gemm.RULES,
        **convolution.RULES,
        **reduction.RULES,
        **indexing.RULES,
        **sorting.RULES,
        **linalg.RULES,
        **rng.RULES,
        **normalisation.RULES,
        **quantised.RULES,
    }
)

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

__all__ = ["REFUSED", "RULES", "STRUCTURAL"]
