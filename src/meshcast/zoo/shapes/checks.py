"""Checks that configurations share: a size that cannot be is refused with the numbers and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshcast.base import UsageError, nearest


def require_divides(config: Any, part: str, whole: str) -> None:
    """Refuses a configuration whose field `part` does not divide its field `whole`."""
    few, many = getattr(config, part), getattr(config, whole)
    if few < 1 or many % few:
        raise UsageError(
            f"{whole}={many} is not divisible by {part}={few}", where="--set", fix=f"change {whole} or {part}"
        )


def require_one_of(config: Any, field: str, known: Iterable[str]) -> None:
    """Refuses a configuration whose field is none of the known words."""
    known, value = list(known), getattr(config, field)
    if value not in known:
        raise UsageError(
            f"{field}={value!r} is not one of {', '.join(known)}", where="--set", fix=nearest(str(value), known)
        )


def require(condition: bool, message: str, fix: str | None = None) -> None:
    """Refuses a configuration that breaks a condition."""
    if not condition:
        raise UsageError(message, where="--set", fix=fix)
