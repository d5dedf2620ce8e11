"""Ragged products (`jax.lax.ragged_dot_general`): one dimension of the operands is cut into groups at run time.

What the groups share out is the mode; the sizes of groups are data, so all are taken to be equal. With G groups:

| ragged dimension | lhs, rhs -> result | what runs |
|---|---|---|
| a free one of lhs | [M, K], [G, K, N] -> [M, N] | G products of M/G x N x K, each with weights of its own |
| a contracting one | [M, K], [K, N] -> [G, M, N] | G products of M x N x K/G |
| a batching one | [B, M, K], [B, K, N] -> [B, M, N] | B products; groups only say which of them are counted in |

Every row, or slice, belongs to one group, so the FLOPs are those of one dense product, 2 B M N K, in each mode. That is a
grouped kernel's work; what a GPU's compiler makes of it is told by `lower/products/ragged_products.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import chlo

from meshcast.base import UnsupportedError
from meshcast.programs import string_of
from meshcast.workload.graph import Cost
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import PRECISIONS, precision
from meshcast.workload.rules.gemm import contraction, gemm_cost

_NUMBERS = "ragged_dot_dimension_numbers"


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """The dimension numbers of a ragged product, in the order that a composite lists them in."""

    lhs_batching: Sequence[int]
    rhs_batching: Sequence[int]
    lhs_contracting: Sequence[int]
    rhs_contracting: Sequence[int]
    lhs_ragged: Sequence[int]
    rhs_group: Sequence[int]


def _ragged_dot(reading: OpReading) -> Cost:
    """The grouped product that runs, with the FLOPs of the dense one."""
    lhs, rhs, group_sizes = reading.operands[:3]
    dims, asked = _said(reading)
    groups = group_sizes.shape[-1] if group_sizes.shape else 1
    ragged = dims.lhs_ragged[0]
    dense = contraction(
        lhs,
        rhs,
        reading.results[0],
        batch=dims.lhs_batching,
        rhs_batch=dims.rhs_batching,
        lhs_contracting=dims.lhs_contracting,
        rhs_contracting=dims.rhs_contracting,
        rhs_group=dims.rhs_group,
        precision=asked,
    )
    cost = gemm_cost(reading, dense)
    if ragged in dims.lhs_contracting:
        shared = max(1, min(groups, dense.k))
        return replace(cost, geometry=replace(dense, batch=dense.batch * shared, k=-(-dense.k // shared), split=shared))
    if ragged in dims.lhs_batching:
        return cost
    return replace(cost, geometry=replace(dense, groups=groups))


def _said(reading: OpReading) -> tuple[_Dimensions, str]:
    """Dimension numbers and precision, of the op itself or of the composite that `jax.export` writes in its place."""
    attributes = reading.op.attributes
    if _NUMBERS in attributes:
        said = chlo.RaggedDotDimensionNumbers(attributes[_NUMBERS])
        found = _Dimensions(
            said.lhs_batching_dimensions,
            said.rhs_batching_dimensions,
            said.lhs_contracting_dimensions,
            said.rhs_contracting_dimensions,
            said.lhs_ragged_dimensions,
            said.rhs_group_dimensions,
        )
        return _checked(found, reading), precision(reading.op, chlo.PrecisionAttr)
    noted: Any = attributes.get("composite_attributes", {})
    if _NUMBERS not in noted or len(noted[_NUMBERS]) != len(_Dimensions.__slots__):
        raise _unreadable(reading, f"no {_NUMBERS} among its attributes")
    found = _Dimensions(*(np.asarray(numbers).tolist() for numbers in noted[_NUMBERS]))
    asked = [string_of(item) for item in noted["precision_config"]] if "precision_config" in noted else []
    return _checked(found, reading), max(asked, key=_rank, default="DEFAULT")


def _checked(found: _Dimensions, reading: OpReading) -> _Dimensions:
    """The dimension numbers, where there is one ragged dimension and none lies beyond its operand's."""
    ranks = tuple(len(tensor.shape) for tensor in reading.operands[:2])
    left = (*found.lhs_batching, *found.lhs_contracting, *found.lhs_ragged)
    right = (*found.rhs_batching, *found.rhs_contracting, *found.rhs_group)
    if len(found.lhs_ragged) != 1 or any(dim >= ranks[0] for dim in left) or any(dim >= ranks[1] for dim in right):
        raise _unreadable(
            reading, f"dimension numbers that do not fit operands of {ranks[0]} and {ranks[1]} dimensions"
        )
    return found


def _unreadable(reading: OpReading, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{reading.name} has {what}",
        where=reading.location or None,
        fix="export the program with a version of JAX from 0.10.2 to 0.12",
    )


def _rank(name: str) -> int:
    return PRECISIONS.index(name) if name in PRECISIONS else 0


RULES: Mapping[str, Rule] = {"chlo.ragged_dot": _ragged_dot}
