"""How deep a program's regions and calls may lie in each other, and how far calls may let it grow."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from meshcast.base.errors import UnsupportedError

# MLIR's parser calls itself for every region: on a stack of 8 MiB it ends the process between 2,000 and 4,000 of them.
MAX_NESTING = 2000
# Our own walks over blocks take up to six frames of the interpreter a level.
_FRAMES = 12
_LEAST, _GROWTH = 1 << 15, 64  # a layer that a hundred calls share is inlined as often
_ORDINARY = 50  # levels that the interpreter's limit of 1,000 frames leaves room for


class _Room:
    """The interpreter's limit on recursion, which is the whole process's."""

    lock = threading.Lock()
    needed = 0  # the highest limit that a program has needed so far: lowered programs are kept, and walked over again
    users = 0  # predictions under way
    outside = 0  # the limit that the first of them found


@contextmanager
def room_for_nesting() -> Iterator[None]:
    """Whatever nested programs need of the interpreter's limit on recursion inside; outside it is as it was."""
    with _Room.lock:
        if not _Room.users:
            _Room.outside = sys.getrecursionlimit()
        _Room.users += 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _Room.needed))
    try:
        yield
    finally:
        with _Room.lock:
            _Room.users -= 1
            if not _Room.users:
                sys.setrecursionlimit(_Room.outside)


def recursion(circle: Sequence[str]) -> UnsupportedError:
    """The error of a program whose functions call each other in a circle."""
    return UnsupportedError(
        f"the program calls itself: {' -> '.join(f'@{name}' for name in circle)}",
        where=f"@{circle[-1]}",
        fix="write the recursion as a loop",
    )


def allow_nesting(depth: int, *, where: str) -> None:
    """Makes room for walks over blocks that are nested as deep, for as long as `room_for_nesting` lasts.

    Outside of it (stages that are called one by one) the room stays: what is read now is lowered and simulated later.

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
        with _Room.lock:
            _Room.needed = max(_Room.needed, 1000 + _FRAMES * depth)
            sys.setrecursionlimit(max(sys.getrecursionlimit(), _Room.needed))


def room_to_grow(ops: int) -> int:
    """The most ops that calls may make of so many in a program's text: beyond them calls are counted, not inlined."""
    return max(_LEAST, _GROWTH * ops)
