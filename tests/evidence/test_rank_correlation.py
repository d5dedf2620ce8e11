"""Rank correlations by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.evidence.rank_correlation import kendall, mean_ranks, spearman

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12)


def test_ties_share_the_mean_of_their_ranks() -> None:
    assert mean_ranks([10.0, 30.0, 10.0, 20.0]).tolist() == [1.5, 4.0, 1.5, 3.0]


def test_spearman() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 40, 80]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # Ranks 1, 2, 3 against 1.5, 1.5, 3: covariance 1.5 over sqrt(2 * 1.5).
    assert spearman([1, 2, 3], [5, 5, 6]) == pytest.approx(1.5 / math.sqrt(3))
    assert spearman([1], [2]) is None


def test_kendall() -> None:
    assert kendall([1, 2, 3, 4], [10, 20, 40, 80]) == pytest.approx(1.0)
    assert kendall([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # Of six pairs one is turned round: (5 - 1) / 6.
    assert kendall([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)


def test_kendall_with_ties() -> None:
    # Three pairs, one tied on the second side; the other two agree: 2 / sqrt(3 * 2).
    assert kendall([1, 2, 3], [5, 5, 6]) == pytest.approx(2 / math.sqrt(6))
    # Tied on both sides in one and the same pair: what is left agrees completely.
    assert kendall([1, 1, 2], [4, 4, 9]) == pytest.approx(1.0)
    assert kendall([1, 2], [3, 3]) is None
    assert kendall([1], [2]) is None


@given(PAIRS)
def test_kendall_is_what_counting_pairs_gives(pairs: Pairs) -> None:
    agree = differ = first = second = 0
    for (a, b), (c, d) in itertools.combinations(pairs, 2):
        agree += (a - c) * (b - d) > 0
        differ += (a - c) * (b - d) < 0
        first += a != c
        second += b != d
    found = kendall([a for a, _ in pairs], [b for _, b in pairs])
    if not first or not second:
        assert found is None
    else:
        assert found == pytest.approx((agree - differ) / math.sqrt(first * second))


@given(PAIRS)
def test_correlations_do_not_know_which_side_is_which_nor_any_scale(pairs: Pairs) -> None:
    a, b = [a for a, _ in pairs], [b for _, b in pairs]
    for correlation in (kendall, spearman):
        found = correlation(a, b)
        assert correlation(b, a) == pytest.approx(found)
        assert correlation([math.exp(x) for x in a], [3.0 * x + 1 for x in b]) == pytest.approx(found)
        assert found is None or -1 <= found <= 1
