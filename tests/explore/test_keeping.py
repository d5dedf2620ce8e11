"""Few points are held of many: those that can be best, in each group, and those on the front."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator

import pytest

from meshcast.explore.asking import explore
from meshcast.explore.exploration import front
from meshcast.explore.keeping import Keeper
from meshcast.explore.measures import Known, objective_named
from meshcast.explore.point import Outcome, Point, Status
from meshcast.explore.search import Found
from meshcast.explore.space import Space, SpaceAxis
from meshcast.explore.tables import exploration_sections
from meshcast.explore.work import SearchWork
from meshcast.results.sections import sections_text

KNOWN = Known(devices=1, units=1.0, capacity_bytes=1.0)


def _found(number: int, seconds: float, joules: float) -> Found:
    outcome = Outcome(status="answered", step_time_s=seconds, energy_j=joules, devices=1)
    point = Point(number=number, target="m")
    return Found(point=point, outcome=outcome, known=KNOWN, values={"group": number % 2}, allowed=True)


def test_what_is_forgotten_is_neither_best_nor_on_the_front() -> None:
    lots = random.Random(1)
    every = [_found(number, round(1 + lots.random(), 2), round(1 + lots.random(), 2)) for number in range(500)]
    objectives = [objective_named("time"), objective_named("energy")]
    keeper = Keeper(objectives, top=3, per=("group",), most=50)
    for each in every:
        keeper.take(each)
    assert len(keeper.found) <= 51

    def best(points: list[Found], group: int) -> list[int]:
        mine = [each for each in points if each.values["group"] == group]
        return [each.point.number for each in sorted(mine, key=lambda e: (e.outcome.step_time_s, e.point.number))[:3]]

    def values(found: Found) -> list[float]:
        return [objective.of(found.outcome, found.known) for objective in objectives]

    for group in (0, 1):
        assert best(keeper.found, group) == best(every, group)
    assert [values(each) for each in front(keeper.found, values)] == [values(each) for each in front(every, values)]


def test_a_failure_counts_after_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    class EveryThirdFails:
        def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Outcome]]:
            for number, _ in enumerate(works):
                status: Status = "failed" if number % 3 == 0 else "answered"
                yield (
                    number,
                    Outcome(status=status, step_time_s=None if status == "failed" else 1.0 + number, devices=1),
                )

        def close(self) -> None:
            pass

    monkeypatch.setattr(Keeper, "__init__", functools.partialmethod(Keeper.__init__, most=10))
    axis = SpaceAxis(name="hardware.nvlink.latency", values=tuple(f"{n}us" for n in range(1, 61)))
    space = Space(model="gpt2-tiny", asked={"on": "dgx-h100", "plan": "dp=2", "settings": {"batch": "4"}}, axes=(axis,))
    found = explore(space, engine=EveryThirdFails())
    assert len(found.found) < 60
    assert found.to_json()["failed"] == 20
    # Nobody knows whether they run: none is counted among those that cannot.
    assert found.to_json()["infeasible"] == 0
    assert "60 points: 60 predicted, 0 cannot run, 0 left out by bounds, 20 failed" in sections_text(
        exploration_sections(found, title="best")
    )


def test_a_front_by_hand() -> None:
    points = [_found(n, s, j) for n, (s, j) in enumerate([(1, 3), (2, 2), (3, 1), (2, 3), (1, 3)])]
    objectives = [objective_named("time"), objective_named("energy")]
    kept = front(points, lambda each: [objective.of(each.outcome, each.known) for objective in objectives])
    assert [each.point.number for each in kept] == [0, 1, 2]
