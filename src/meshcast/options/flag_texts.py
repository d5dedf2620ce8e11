"""Texts of flags turned into values."""

from __future__ import annotations

from collections.abc import Iterable

from meshcast.base import UsageError
from meshcast.options.turn_counts import Turns, turns_read


def pairs(texts: Iterable[str] | None, flag: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{text!r} is not NAME=VALUE", where=flag, fix=f"write {flag} NAME=VALUE")
        if name in found:
            raise UsageError(f"{name!r} is given twice, as {found[name]} and {value}", where=flag, fix="give it once")
        found[name] = value
    return found


def sizes(texts: Iterable[str] | None, flag: str) -> dict[str, int]:
    """`NAME=N` texts as positive integers."""
    return {name: positive(value, flag) for name, value in pairs(texts, flag).items()}


def trip_counts(texts: Iterable[str] | None) -> dict[str, Turns]:
    """`N` or `LOW..HIGH` for every loop that needs a count, or `while#2=N` for one."""
    named = pairs([text for text in texts or () if "=" in text], "--trip-count")
    found: dict[str, Turns] = {name: turns_read(value, "--trip-count") for name, value in named.items()}
    for text in texts or ():
        if "=" not in text:
            if "*" in found:
                raise UsageError(f"a second count for all loops: {text}", where="--trip-count", fix="give it once")
            found["*"] = turns_read(text, "--trip-count")
    return found


def positive(text: str, flag: str) -> int:
    """A positive integer."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value < 1 << 63:
        raise UsageError(f"{text!r} is not a positive integer below 2^63", where=flag, fix="give a number from 1 on")
    return value


def whole(text: str, flag: str) -> int:
    """An integer of 0 or more."""
    return 0 if text == "0" else positive(text, flag)
