"""Typed reads of the MLIR attributes the rules need; each costs about a microsecond, none prints an attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from meshcast.programs import string_of

PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")


def integers(op: Any, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
    """An `array<i64: ...>` attribute, or `default` where the op leaves it out."""
    attributes = op.attributes
    return tuple(attributes[name]) if name in attributes else default


def integer(op: Any, name: str, default: int = 0) -> int:
    """An integer attribute, or `default` where the op leaves it out."""
    attributes = op.attributes
    return int(attributes[name].value) if name in attributes else default


def flag(op: Any, name: str) -> bool:
    """A boolean attribute; false where the op leaves it out."""
    attributes = op.attributes
    return name in attributes and bool(attributes[name].value)


def text(op: Any, name: str) -> str:
    """A string attribute; empty where the op leaves it out."""
    attributes = op.attributes
    return string_of(attributes[name]) if name in attributes else ""


def padding(op: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """The `padding` attribute as (low, high) per dimension; no padding where the op leaves it out."""
    attributes = op.attributes
    if "padding" not in attributes:
        return ((0, 0),) * rank
    return tuple((int(low), int(high)) for low, high in np.asarray(attributes["padding"]).reshape(rank, 2))


def precision(op: Any, attribute: type[Any] = stablehlo.PrecisionAttr) -> str:
    """The dot algorithm's short name where one is asked for, else the highest operand precision.

    CHLO has a precision attribute of its own, which its ops pass as `attribute`.
    """
    attributes = op.attributes
    if "algorithm" in attributes:
        return _algorithm_name(stablehlo.DotAlgorithm(attributes["algorithm"]))
    if "precision_config" not in attributes:
        return "DEFAULT"
    asked = [attribute(item).value for item in attributes["precision_config"]]
    return max(asked, key=PRECISIONS.index, default="DEFAULT")


def _algorithm_name(algorithm: Any) -> str:
    """XLA's spelling, e.g. `BF16_BF16_F32_X3`: operand types, accumulator, number of passes over the matrix engine."""
    types = (algorithm.lhs_precision_type, algorithm.rhs_precision_type, algorithm.accumulation_type)
    passes = algorithm.num_primitive_operations
    fast = "_FAST_ACCUM" if algorithm.allow_imprecise_accumulation else ""
    return "_".join(str(kind).upper() for kind in types) + (f"_X{passes}" if passes > 1 else "") + fast


def constant_float(value: Any) -> float | None:
    """What every element of a value is, where it is a real constant or broadcast from one; else nothing."""
    owner = value.owner
    while getattr(owner, "name", "") == "stablehlo.broadcast_in_dim":
        owner = owner.operands[0].owner
    if getattr(owner, "name", "") != "stablehlo.constant":
        return None
    if isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType):
        return None  # which MLIR's bindings cannot read
    held = owner.attributes["value"]
    splat = isinstance(held, ir.DenseFPElementsAttr) and held.is_splat
    return float(ir.FloatAttr(held.get_splat_value()).value) if splat else None
