"""Why an estimate is what it is: the formula that answered, with its terms by name, symbol, value and unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One quantity of a formula; units are SI (`s`, `B`, `FLOP/s`, `Hz`), or empty for counts and shares."""

    name: str
    symbol: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A kernel's time and where it comes from; the terms stand in the order in which the formula uses them."""

    estimator: str
    model: str  # which of an estimator's models answered
    formula: str
    terms: tuple[Term, ...]
    time: float
    limited_by: str
