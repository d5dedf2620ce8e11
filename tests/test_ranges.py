"""Lists of numbers in messages."""

from __future__ import annotations

from meshcast.ranges import shortened


def test_long_lists_say_how_many_there_are() -> None:
    assert shortened([3, 1, 2, 7], 4) == "1-3,7"
    assert shortened(range(0, 20, 2), 3) == "0,2,4, ... (10)"
