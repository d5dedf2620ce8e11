"""The seam between the reader and the cost rules: what a rule is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshcast.base import made_quickly
from meshcast.workload.graph import Cost, Tensor


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class OpReading:
    """One MLIR op as a rule sees it: local operand and result types, the op itself for attributes and regions."""

    name: str
    operands: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    op: Any  # jaxlib.mlir.ir.Operation; untyped because its stubs are
    location: str = ""
    skew: float = 0.0  # exponent of the Zipf law of gather and scatter indices


Rule = Callable[[OpReading], Cost]
