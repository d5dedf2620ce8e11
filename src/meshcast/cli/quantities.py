"""Quantities that flags take: `--within 800ms`, `--memory 40GB`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcast.base import Dimension

_EXAMPLES = {"s": ("'2 s'", "800ms"), "bytes": ("'40 GB'", "512MB")}  # by the unit of a dimension


def flag_quantity(text: str, dimension: Dimension, flag: str) -> float:
    """What a flag says, in the SI unit of a dimension.

    Raises:
        UsageError: It is no such quantity.
    """
    from meshcast.base import InputError, UsageError, parse_quantity

    try:
        return parse_quantity(text, dimension)
    except InputError as error:
        examples = " or ".join(f"{flag} {each}" for each in _EXAMPLES[dimension.value])
        raise UsageError(error.message, where=flag, fix=f"write its unit too, such as {examples}") from None
