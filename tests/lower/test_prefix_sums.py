"""Levels of prefix sums."""

from __future__ import annotations

import pytest

from meshcast.lower import scan_levels


@pytest.mark.parametrize(
    ("length", "levels"), [(1, 0), (16, 0), (17, 1), (256, 1), (257, 2), (4096, 2), (4097, 3), (65536, 3)]
)
def test_windows_of_sixteen_are_summed_until_one_is_left(length: int, levels: int) -> None:
    assert scan_levels(length) == levels
