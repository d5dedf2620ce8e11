"""What is said of how a device was checked."""

from __future__ import annotations

import pytest

from meshcast.results.trust import Trust


@pytest.mark.parametrize(
    ("widened", "said"),
    [
        ((1.0, 1.0), ""),
        ((1.16, 1.03), "; interval 16% wider below and 3% wider above for that"),
        ((0.998, 1.2), "; interval 20% wider above for that"),
        ((0.9, 1.0), "; interval 10% narrower below for that"),
        ((1.004, 0.996), ""),
    ],
)
def test_an_end_that_hardly_moves_is_not_spoken_of(widened: tuple[float, float], said: str) -> None:
    (row,) = Trust(checked="data-sheet", against="", widened=widened, energy="").rows()
    assert row[1].partition(";")[1] + row[1].partition(";")[2] == said
