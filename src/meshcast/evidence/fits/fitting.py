"""What calibrations share: the search, the error they report, and the file they write."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

P = TypeVar("P")
FACTORS = (1.4, 1.2, 1.1, 1.05, 1.02)
LOW, HIGH = 0.05, 0.95


def search(start: P, names: Sequence[str], cost: Callable[[P], float]) -> P:
    """Coordinate search by shrinking factors."""
    best, lowest = start, cost(start)
    for factor in FACTORS:
        improved = True
        while improved:
            improved = False
            for name in names:
                for step in (factor, 1 / factor):
                    trial: P = replace(best, **{name: getattr(best, name) * step})  # type: ignore[type-var]
                    if (value := cost(trial)) < lowest - 1e-5:
                        best, lowest, improved = trial, value, True
    return best


def geomean_error(residuals: Sequence[float]) -> float:
    """The geometric mean error: `exp(mean |log ratio|) - 1`."""
    return math.exp(sum(map(abs, residuals)) / len(residuals)) - 1 if residuals else math.nan


def quantiles(
    ratios_by_kind: Mapping[str, Sequence[float]], *, low: float = LOW, high: float = HIGH
) -> dict[str, tuple[float, float]]:
    """Quantiles of measured over predicted by kind, and of all together under `default`; 5 % and 95 % unless told."""
    found = {}
    every = [ratio for ratios in ratios_by_kind.values() for ratio in ratios]
    for kind, ratios in sorted({**ratios_by_kind, "default": every}.items()):
        ordered = sorted(ratios)
        at = [ordered[round(q * (len(ordered) - 1))] for q in (low, high)]
        found[kind] = (min(1.0, at[0]), max(1.0, at[1]))
    return found


def to_toml(
    parameters: Any,
    bounds: Mapping[str, tuple[float, float]],
    *,
    schema: str,
    provenance: str,
    fitted: Collection[str],
    heading: str = "Measured over predicted: 5 % and 95 % quantiles.",
) -> str:
    """A parameter file, each parameter with its meaning; those that are not `fitted` are marked as set by hand.

    Args:
        parameters: What was fitted, and the rest as it is.
        bounds: Intervals by kernel kind.
        schema: The file's.
        provenance: Where it comes from.
        fitted: Names of parameters that were fitted.
        heading: What the intervals are quantiles of.
    """
    lines = [f'schema = "{schema}"', f'provenance = """\n{provenance}\n"""', "", "[parameters]"]
    for f in fields(parameters):
        value, source = getattr(parameters, f.name), f.metadata.get("source")
        if f.name in fitted:
            lines.append(f"{f.name} = {value:.4g}  # {f.metadata['about']}")
        else:  # to the last digit
            by = f": {source}" if source else ""
            lines.append(f"{f.name} = {value!r}  # {f.metadata['about']} (set by hand{by})")
    lines += ["", *(f"# {line}" for line in heading.splitlines()), "[intervals]"]
    lines += [f"{kind} = [{low:.3f}, {high:.3f}]" for kind, (low, high) in bounds.items()]
    return "\n".join(lines) + "\n"
