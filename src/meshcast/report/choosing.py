"""Which of many things a picture shows: as many as there is room for, evenly from the first to the last."""

from __future__ import annotations


def evenly(count: int, most: int) -> list[int]:
    """Places of `most` of `count` things, or of all where they are no more; the first and the last are among two or more."""
    if count <= most:
        return list(range(count))
    if most < 2:
        return [0][:most]
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})
