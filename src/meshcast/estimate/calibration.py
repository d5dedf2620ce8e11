"""Calibrated parameters in a file: each with its meaning, checked when read, and intervals by kernel kind."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from meshcast.base import InputError

P = TypeVar("P")

# The quantiles come from programs that the mechanisms were found on, so they are too narrow for others. At this power they
# hold 95 % of those programs, and 83 % of the reference models, which were measured afterwards (on an H200).
WIDENING = 1.25


def about(text: str, start: float, source: str = "") -> Any:
    """A parameter with what it means, where the fit starts and, of one that no fit moves, where it comes from."""
    return field(default=start, metadata={"about": text, "source": source})


@dataclass(
    frozen=True, kw_only=True
)  # no slots: Python 3.11 cannot make a frozen, slotted object through a generic alias
class Calibration(Generic[P]):
    """Parameters, the interval per kernel kind (factors on the time), and where they come from."""

    parameters: P
    intervals: Mapping[str, tuple[float, float]]
    provenance: str = ""

    def interval(self, kind: str) -> tuple[float, float]:
        """(low, high) factors; kinds that were never measured alone take those of all measured programs."""
        low, high = self.intervals.get(kind) or self.intervals.get("default", (0.5, 2.0))
        return low**WIDENING, high**WIDENING


def parse(text: str, of: type[P], schema: str, where: str) -> Calibration[P]:
    """Reads a parameter file; parameters it leaves out keep their start values.

    Raises:
        InputError: unknown schema, unknown or non-positive parameter.
    """
    data = tomllib.loads(text)
    if data.get("schema") != schema:
        raise InputError(f"schema is {data.get('schema')!r}, not {schema!r}", where=where)
    known = {f.name for f in fields(of)}  # type: ignore[arg-type]
    values = data.get("parameters", {})
    for name, value in values.items():
        if name not in known or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise InputError(f"{name} = {value!r} is not a parameter with a positive value", where=where)
    intervals = {kind: (float(low), float(high)) for kind, (low, high) in data.get("intervals", {}).items()}
    return Calibration(parameters=of(**values), intervals=intervals, provenance=str(data.get("provenance", "")))
