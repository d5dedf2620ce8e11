"""Whole numbers as a short text: `0-7,16`."""

from __future__ import annotations

from collections.abc import Iterable

from meshcast.base.errors import MeshcastError, UsageError

LARGEST = 1 << 20  # more than any cluster has; a range beyond is a mistake, and would fill the memory


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers as a short text: `0-7,16`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def shortened(numbers: Iterable[int], most: int) -> str:
    """The lowest `most` of some numbers in the same way, and where that are not all of them, how many there are."""
    found = sorted(numbers)
    return ranges(found[:most]) + (f", ... ({len(found):,})" if len(found) > most else "")


def parse_ranges(
    text: str, *, where: str = "--ranks", what: str = "rank", example: str = "0-7,16",
    error: type[MeshcastError] = UsageError, below: int = LARGEST,
) -> tuple[int, ...]:  # fmt: skip
    """Whole numbers from `0-7,16`, in order and each once.

    Args:
        text: The text.
        where: What it stands in.
        what: What is numbered.
        example: How it is written there.
        error: What it is refused with.
        below: What every number is less than; at most `LARGEST`.

    Raises:
        MeshcastError: It is no such text, or goes too far; the `error` that is asked for.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isascii() or not first.isdigit() or (dash and not (last.isascii() and last.isdigit())):
            raise error(f"{part!r} is no {what} and no range of {what}s", where=where, fix=f"write them as {example}")
        below = min(below, LARGEST)
        # By their digits first: Python refuses to read very long numbers.
        if too_large := [n for n in (first, last) if len(n.lstrip("0")) > len(str(below)) or int(n or 0) >= below]:
            raise error(
                f"{what} {too_large[0]:.20} is beyond the last one, {below - 1}",
                where=where,
                fix=f"write them as {example}",
            )
        if dash and int(last) < int(first):
            raise error(f"{part!r} ends before it begins", where=where, fix=f"write the lower {what} first")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))
