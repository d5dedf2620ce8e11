"""Printed formulas, evaluated: what a reader gets who puts the printed terms into them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from meshcast.estimate.explanation import Explanation


def by_formula(told: Explanation) -> float:
    """The time of an explanation, from its terms alone.

    Names beside each other are multiplied (`n launch`), `|a, b|_p` is a p-norm, which may have others inside,
    `X, at least Y` the longer one, and `X, of a, b` brings the longest and the sum of its parts.
    """
    values = {term.symbol.partition(" =")[0]: term.value for term in told.terms if term.symbol != "t"}
    formula, _, parts = told.formula.removeprefix("t = ").partition(", of ")
    if parts:
        engines = [evaluated(part, values) for part in parts.split(", ")]
        values |= {"longest": max(engines), "sum": sum(engines)}
    return max(evaluated(side, values) for side in formula.split(", at least "))


def definitions(told: Explanation) -> list[tuple[float, float]]:
    """Terms that say what they are made of (`issue = i/I`), where all of that is printed: (as printed, evaluated)."""
    values = {term.symbol.partition(" =")[0]: term.value for term in told.terms if term.symbol != "t"}
    found = []
    for term in told.terms:
        made_of = term.symbol.partition(" = ")[2]
        if made_of and set(re.findall(r"[A-Za-z]\w*", made_of)) <= set(values):
            found.append((term.value, evaluated(made_of, values)))
    return found


def evaluated(expression: str, values: Mapping[str, float]) -> float:
    """An expression of printed symbols; a quotient may be a symbol itself (`F/peak`)."""
    names = dict(values)
    for number, symbol in enumerate(
        sorted((each for each in values if not each.isidentifier()), key=len, reverse=True)
    ):
        names[f"_{number}"] = names.pop(symbol)
        expression = expression.replace(symbol, f"_{number}")

    def norm(power: float, *seconds: float) -> float:
        longest = max(seconds)
        return longest * sum((each / longest) ** power for each in seconds) ** (1 / power) if longest else 0.0

    while (inner := re.sub(r"\|([^|]*)\|_([a-z])\b", r"norm(\2, \1)", expression)) != expression:
        expression = inner  # norms inside norms: the innermost first
    expression = re.sub(r"(?<=[\w)])\s+(?=[\w(])", " * ", expression)
    return float(eval(expression, {"max": max, "norm": norm}, names))
