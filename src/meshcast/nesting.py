"""How deep a program's regions and calls may lie in each other, and how far calls may let it grow."""

from __future__ import annotations

import sys

from meshcast.errors import UnsupportedError

# MLIR's parser calls itself for every region: on a stack of 8 MiB it ends the process between 2,000 and 4,000 of them.
MAX_NESTING = 2000
# Our own walks over blocks take up to six frames of the interpreter a level.
_FRAMES = 12
_LEAST, _GROWTH = 1 << 15, 64  # a layer that a hundred calls share is inlined as often
_ORDINARY = 50  # levels that the interpreter's limit of 1,000 frames leaves room for


def allow_nesting(depth: int, *, where: str) -> None:
    """Makes room for walks over blocks that are nested as deep; the interpreter's limit on recursion is only ever raised.

    Raises:
        UnsupportedError: Nobody nests programs as deep.
    """
    if depth > MAX_NESTING:
        raise UnsupportedError(
            f"regions and calls are nested {depth:,} deep, and {MAX_NESTING:,} is the most",
            where=where,
            fix="write the nest as one loop, or as one branch with more cases",
        )
    if depth > _ORDINARY:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000 + _FRAMES * depth))


def room_to_grow(ops: int) -> int:
    """The most ops that calls may make of so many in a program's text: beyond them calls are counted, not inlined."""
    return max(_LEAST, _GROWTH * ops)
