"""How long a search still takes, by hand and over whole searches whose works take known times."""

from __future__ import annotations

import re

import pytest

from meshcast.base import Said, listening
from meshcast.explore.pace import SearchPace
from meshcast.explore.point import Point
from meshcast.explore.work import SearchWork
from meshcast.zoo import Plan
from tests.explore.test_search import Bounds, Clock, searched_by_the_clock


def test_the_rest_is_layers_and_points_by_what_became_of_the_others() -> None:
    now = 0.0
    pace = SearchPace(kinds=20, top=10, clock=lambda: now)
    assert pace.left_s(layers=0, predicted=0, open_points=100) is None
    pace.note(layers=4, points=0, seconds=40.0)  # loads everything: it tells nothing
    assert pace.left_s(layers=4, predicted=0, open_points=100) is None
    assert pace.share(None) == 0
    pace.note(layers=8, points=0, seconds=16.0)
    assert pace.left_s(layers=12, predicted=0, open_points=100) == pytest.approx(8 * 2.0 + (10 * 100) ** 0.5 * 2.0)
    pace.note(layers=8, points=0, seconds=16.0)
    pace.note(layers=0, points=10, seconds=50.0)
    assert pace.left_s(layers=20, predicted=10, open_points=90) == 90 * 0.5 * 5.0
    # Since then 10 were predicted and 28 beaten: of 52 open points (10 + 1) / (38 + 2) are expected to be predicted, 5 s each.
    left = pace.left_s(layers=20, predicted=20, open_points=52)
    assert left == pytest.approx(52 * 11 / 40 * 5.0)
    assert pace.left_s(layers=20, predicted=20, open_points=52, under_way=2) == pytest.approx(50 * 11 / 40 * 5.0)
    now = left or 0.0
    assert pace.share(left) == 0.5
    assert pace.share(10 * now) == 0.5  # it never goes back
    before, now = (
        now,
        now * 2,
    )  # and does not stand still where ten times as much is left as was thought: 1 of 11 parts is done
    assert pace.share(10 * before) == pytest.approx(0.5 + 0.5 / 11)


LEFT = re.compile(r"(about|at least) ([\d.]+) s left")


@pytest.mark.parametrize("objectives", [("time",), ("time", "memory")])
def test_one_bar_spans_bounds_and_predictions(monkeypatch: pytest.MonkeyPatch, objectives: tuple[str, ...]) -> None:
    """Layers take 1 s, points 3 s; by the pace of all points the whole was told many times too long."""
    clock = Clock(monkeypatch)
    heard: list[tuple[float, Said]] = []
    with listening(lambda said: heard.append((clock.now, said))):
        searched_by_the_clock(clock, objectives)
    shares = [said.share for _, said in heard if said.share is not None]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9
    told = [(at, found[1], float(found[2])) for at, said in heard if (found := LEFT.search(said))]
    assert len(told) > len(heard) / 2
    assert max(at + left for at, _, left in told) < 4 * clock.now
    # Before a point is timed all that is known is what layers take, and a point takes longer than those.
    least = [at + left for at, said, left in told if said == "at least"]
    assert least
    assert max(least) < clock.now
    assert told[-1][1] == "about"


def test_layers_of_plans_that_are_beaten_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan has layers of its own: at the end none is left that somebody may ask for, though most were never looked at."""

    def own(_: Bounds, plan: Plan, level: int) -> SearchWork:
        return SearchWork(kind="layers", point=Point(number=-1, target=str(plan), asked={}), layers=level)

    clock = Clock(monkeypatch)
    monkeypatch.setattr(Bounds, "wanted", own)
    heard: list[Said] = []
    with listening(heard.append):
        searched_by_the_clock(clock, ("time",))
    found = [re.match(r"([\d,]+) of ([\d,]+) kinds", said) for said in heard]
    counts = [[int(each.replace(",", "")) for each in one.groups()] for one in found if one]
    assert counts[-1][1] < counts[0][1]
    assert "kinds" not in heard[-1]  # all that are still asked for are there: points are what is left to count
    assert re.match(r"[\d,]+ of [\d,]+ points decided", heard[-1])
