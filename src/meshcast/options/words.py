"""`InWords`: a value of an option beside the words that asked for it; and how the options with such values are read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from meshcast.base import UsageError, checked
from meshcast.lower import Overlap

if TYPE_CHECKING:
    from meshcast.workload import Collective
    from meshcast.zoo import Plan

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class InWords(Generic[Value]):
    """The value of an option and the words that asked for it: stages use the value, `inputs` and levers repeat the words."""

    text: str
    value: Value

    def __str__(self) -> str:
        return self.text


def read_plan(name: str, value: Any) -> InWords[Plan] | None:
    """A plan from its text.

    Raises:
        UsageError: It is no plan.
    """
    from meshcast.zoo import Plan

    if value is None or isinstance(value, InWords):
        return value
    if isinstance(value, Plan):
        return InWords(str(value), value)
    text = checked(name, value, (str, type(None)))
    return InWords(text, Plan.parse(text))


def read_overlap(name: str, value: Any) -> InWords[Overlap]:
    """What is rewritten so that communication overlaps, from its text (`Overlap.parse`).

    Raises:
        UsageError: There is no such rewrite.
    """
    if isinstance(value, InWords):
        return value
    if isinstance(value, Overlap):
        return InWords(str(value), value)
    text = checked(name, value, (str,))
    return InWords(text, Overlap.parse(text))


def read_indices(name: str, value: Any) -> InWords[float]:
    """The exponent of the Zipf law that a spread of indices names; 0 for `uniform`.

    Raises:
        UsageError: It is neither `uniform` nor `zipf:S` with a number S of 0 or more.
    """
    if isinstance(value, InWords):
        return value
    text = checked(name, value, (str,))
    law, _, exponent = text.partition(":")
    if text == "uniform":
        return InWords(text, 0.0)
    try:
        skew = float(exponent) if law == "zipf" else math.nan
    except ValueError:
        skew = math.nan
    if not 0 <= skew < math.inf:
        raise UsageError(
            f"no spread of indices {text!r}", where="--indices", fix="uniform, or zipf:S such as zipf:1.05"
        )
    return InWords(text, skew)


def read_beside(name: str, value: Any) -> tuple[InWords[Collective], ...]:
    """Collectives of other jobs from their texts (`network.other_job`).

    Raises:
        UsageError: One is not KIND:BYTES:FIRST-LAST.
    """
    from meshcast.network import other_job

    if isinstance(value, (tuple, list)) and all(isinstance(each, InWords) for each in value):
        return tuple(value)
    texts = checked(name, value, (tuple,))
    return tuple(InWords(text, other_job(text)) for text in texts)
