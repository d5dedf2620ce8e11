"""Whole numbers in a text: what is read, and what is refused before it fills the memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import InputError, UsageError
from meshcast.base.number_ranges import LARGEST, parse_ranges, ranges, shortened


@given(st.sets(st.integers(min_value=0, max_value=LARGEST - 1), min_size=1, max_size=20))
def test_what_is_written_is_read(numbers: set[int]) -> None:
    assert parse_ranges(ranges(numbers)) == tuple(sorted(numbers))


@pytest.mark.parametrize("text", ["0-9999999999", "0-" + "9" * 5000, "9" * 5000, str(LARGEST), "0-7,99999999"])
def test_a_range_beyond_all_devices_is_refused_unexpanded(text: str) -> None:
    with pytest.raises(UsageError, match=f"is beyond the last one, {LARGEST - 1}") as raised:
        parse_ranges(text)
    assert len(raised.value.message) < 80


def test_a_bound_of_its_own() -> None:
    assert parse_ranges("0-3", below=4) == (0, 1, 2, 3)
    assert parse_ranges("0003", below=4) == (3,)
    with pytest.raises(InputError, match="device 4 is beyond the last one, 3"):
        parse_ranges("4", what="device", below=4, error=InputError)


def test_long_lists_say_how_many_there_are() -> None:
    assert shortened([3, 1, 2, 7], 4) == "1-3,7"
    assert shortened(range(0, 20, 2), 3) == "0,2,4, ... (10)"
