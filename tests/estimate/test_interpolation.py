"""Interpolation on functions that are known: exact at measured places, the reference far from them, honest intervals."""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np
import pytest

from meshcast.estimate.profiled import interpolation
from meshcast.estimate.profiled.distances import UNTHREADED, doubled_products, nearest_rows, pieces, rows_near
from meshcast.estimate.profiled.interpolation import (
    AT_ONCE,
    FACTORS,
    KernelFamily,
    _nearest_as_good,
    checked,
    fit,
    predict,
)


def line(count: int = 40) -> tuple[list[tuple[float]], list[float], list[str]]:
    places = [(x,) for x in np.linspace(0, 10, count)]
    return places, [0.3 * np.sin(x) for (x,) in places], [f"p{i}" for i in range(count)]


def test_measured_places_keep_their_times() -> None:
    places, y, _ = line()
    family = KernelFamily(places=np.array(places), y=np.array(y), doubt=np.ones(len(y)), noise=1e-6)
    answers = predict(family, np.array(places))
    assert answers.y == pytest.approx(y, abs=1e-3)
    assert np.all(answers.nearest == pytest.approx(0, abs=1e-6))


def test_what_too_few_rows_judge_spans_as_much_as_the_others_cover() -> None:
    few = fit(*line(8), common=[True] * 8)
    assert math.erf(few.quantile / math.sqrt(2)) == pytest.approx(interpolation.COVERED, abs=0.001)


@pytest.mark.parametrize("ratio", [0.0, 0.25, 9e9])
def test_rows_that_are_foreseen_exactly_still_have_an_interval(ratio: float) -> None:
    """Ratios that are all one, or beyond what is believed, are off by nothing: a span of zero made a file that nobody reads."""
    places, y, programs = line()
    found = fit(places, [ratio] * len(y), programs, [True] * len(y))
    assert checked(found).quantile > 0


def test_between_them_it_follows_the_neighbours() -> None:
    family = fit(*line(), common=[True] * 40)
    queries = np.linspace(0.3, 9.7, 57)[:, None]
    assert predict(family, queries).y == pytest.approx(0.3 * np.sin(queries[:, 0]), abs=0.05)


def test_a_row_that_the_others_do_not_foresee_does_not_move_its_neighbours() -> None:
    """One of 40 rows lies off by a factor of seven: its neighbours keep their times, where it has a variance as all others."""
    places, y, programs = line()
    y[20] += 2.0
    family = fit(places, y, programs, common=[True] * 40)
    assert family.doubt[20] > 20 * np.median(family.doubt)
    asked = np.array([places[19], places[21]])
    alike = KernelFamily(
        places=family.places,
        y=family.y,
        doubt=np.ones(40),
        length=family.length,
        noise=family.noise,
        signal=family.signal,
    )
    truth = np.array([y[19], y[21]])
    assert np.abs(predict(family, asked).y - truth).max() < 0.1
    between = np.array([[(places[20][0] + places[21][0]) / 2]])
    assert abs(predict(family, between).y[0]) < abs(predict(alike, between).y[0]) / 2


def test_many_queries_are_answered_as_few_are() -> None:
    """They are worked on some at a time, and the last ones are fewer."""
    family = fit(*line(), common=[True] * 40)
    queries = np.linspace(-1, 11, 2 * AT_ONCE + 5)[:, None]
    together, apart = predict(family, queries), [predict(family, queries[i : i + 2]) for i in range(0, len(queries), 2)]
    for column in ("y", "deviation", "nearest"):
        assert getattr(together, column) == pytest.approx(np.concatenate([getattr(a, column) for a in apart]), abs=1e-7)


def test_kernels_at_one_place_are_answered_once() -> None:
    family = fit(*line(), common=[True] * 40)
    with patch.object(interpolation, "_conditional", side_effect=interpolation._conditional) as asked:
        answers = predict(family, np.array([[1.0], [2.0], [1.0], [1.0], [2.0], [3.0]]))
    assert [len(call.args[1]) for call in asked.call_args_list] == [3]
    assert answers.y[0] == answers.y[2] == answers.y[3] != answers.y[1] == answers.y[4] != answers.y[5]


@pytest.mark.parametrize("count", [1, 3, 8, 9, 11, 12, 17, 100])
def test_pieces_are_whole_and_the_last_is_no_single_one(count: int) -> None:
    found = [range(count)[piece] for piece in pieces(count, 8)]
    assert [place for piece in found for place in piece] == list(range(count))
    assert len(found) == 1 or min(map(len, found)) >= 4


@pytest.mark.parametrize(("queries", "rows"), [(1, 50), (2, 9), (8, 5000), (11, 4099)])
def test_products_in_pieces_are_those_of_one(queries: int, rows: int) -> None:
    numbers = np.random.default_rng(queries)
    left, right = numbers.normal(size=(queries, 21)), numbers.normal(size=(rows, 21))
    assert np.allclose(doubled_products(left, right), 2 * left @ right.T, rtol=1e-13, atol=1e-13)


def test_no_product_is_large_enough_for_threads() -> None:
    left, right = np.ones((8, 21)), np.ones((9395, 21))
    with patch.object(np, "matmul", side_effect=np.matmul) as made:
        doubled_products(left, right)
    sizes = [math.prod((*call.args[0].shape, call.args[1].shape[1])) for call in made.call_args_list]
    assert max(sizes) <= UNTHREADED
    assert sum(sizes) == 8 * 21 * 9395


def test_far_away_the_reference_stands_and_the_interval_opens() -> None:
    places, y, _ = line()
    family = KernelFamily(places=np.array(places), y=np.array(y), doubt=np.ones(len(y)), mean=0.0, length=1.0)
    near, far = predict(family, np.array([[5.0], [500.0]])).deviation
    assert predict(family, np.array([[500.0]])).y[0] == pytest.approx(0.0, abs=1e-6)
    assert far > 1.5 * near


def test_a_doubtful_row_says_less() -> None:
    places = np.array([[0.0]])
    sure, unsure = (
        predict(KernelFamily(places=places, y=np.array([1.0]), doubt=np.array([doubt])), places).y[0]
        for doubt in (1.0, 100.0)
    )
    assert sure == pytest.approx(0.05 / 0.06)  # s^2 / (s^2 + n)
    assert unsure == pytest.approx(0.05 / 1.05)


def test_probes_that_mislead_about_common_programs_are_doubted() -> None:
    """Common rows lie on the reference; probes at the same places are far off it."""
    places = [(float(i % 20),) for i in range(40)]
    y = [0.0] * 20 + [1.0 if i % 2 else -1.0 for i in range(20)]
    family = fit(places, y, [f"p{i}" for i in range(40)], [True] * 20 + [False] * 20)
    assert family.doubt[-1] >= FACTORS[-1]
    assert np.abs(predict(family, np.array([[4.5]])).y[0]) < 0.1


def test_intervals_cover_what_they_say() -> None:
    rng = np.random.default_rng(0)
    places = [tuple(p) for p in rng.uniform(0, 8, (300, 3))]
    y = [0.2 * np.sin(sum(p)) + rng.normal(0, 0.05) for p in places]
    family = fit(places[:200], y[:200], [f"p{i}" for i in range(200)], [True] * 200)
    answers = predict(family, np.array(places[200:]))
    inside = np.abs(np.array(y[200:]) - answers.y) <= answers.deviation * family.quantile
    assert 0.8 <= inside.mean() <= 0.99


def test_settings_of_an_earlier_fit_stay() -> None:
    """On a smooth line far from the reference a search finds other ones; what the rows are off by is learnt anew."""
    places, y, programs = line()
    raised = [value + 0.5 for value in y]
    earlier = KernelFamily(places=np.array(places), y=np.array(y), doubt=np.ones(len(y)), length=0.5, noise=0.03)
    kept = fit(places, raised, programs, [True] * len(y), earlier)
    free = fit(places, raised, programs, [True] * len(y))
    assert (kept.length, kept.noise, kept.mean) == (0.5, 0.03, 0.0)
    assert (free.length, free.noise) != (0.5, 0.03)
    assert np.allclose(kept.y, raised)
    assert kept.quantile != earlier.quantile


def test_few_rows_are_not_fitted() -> None:
    family = fit([(0.0,), (1.0,)], [0.5, 0.5], ["a", "b"], [True, True])
    assert family.mean == 0.0
    assert 0 < predict(family, np.array([[0.0]])).y[0] <= 0.5


def test_of_rows_equally_far_the_first_are_chosen() -> None:
    distances = np.array([[3.0, 1.0, 2.0, 1.0 + 1e-13, 1.0, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
    assert nearest_rows(distances, 3).tolist() == [[1, 3, 5], [0, 1, 5]]
    assert nearest_rows(distances, 6).tolist() == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("places", [5, 40, 2000])
def test_the_nearest_are_among_the_rows_that_are_near(places: int) -> None:
    """Of distances in few steps, so that many are equally far but for their last bits; few rows are near of 2,000."""
    rng = np.random.default_rng(3)
    squared = (rng.integers(1, 40, (7, places)) / 7) ** 2 * (1 + rng.normal(0, 1e-15, (7, places)))
    squared[3] = 4.0  # all are as far
    numbers, distances = rows_near(squared, 5)
    nearest = nearest_rows(distances, 5)
    assert np.take_along_axis(numbers, nearest, axis=1).tolist() == nearest_rows(np.sqrt(squared), 5).tolist()
    assert np.array_equal(
        np.take_along_axis(distances, nearest, axis=1),
        np.take_along_axis(np.sqrt(squared), nearest_rows(np.sqrt(squared), 5), axis=1),
    )
    if places == 2000:
        others = np.delete(distances, 3, axis=0)
        assert np.isfinite(others).sum(axis=1).max() < places / 4


@pytest.mark.parametrize(
    ("programs", "length"),
    [
        (100, 4.0),  # 0.01 behind on average, with a standard error of 0.002: worse
        (2, 0.5),  # of two programs 0.014: nobody knows
    ],
)
def test_measured_times_are_carried_no_farther_than_errors_ask_for(programs: int, length: float) -> None:
    one = KernelFamily(places=np.zeros((1, 1)), y=np.zeros(1), doubt=np.ones(1))
    trials = [KernelFamily(places=one.places, y=one.y, doubt=one.doubt, length=each) for each in (0.5, 4.0)]
    best = np.full(100, 0.2)
    behind = 0.01 + np.where(np.arange(100) % 2, 0.02, -0.02)  # a deviation of 0.02 around 0.01
    assert trials[_nearest_as_good(trials, [best + behind, best], programs)].length == length
