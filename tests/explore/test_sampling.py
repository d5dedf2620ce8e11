"""Samples by the real Optuna, where it is installed: the same for the same space, found again by --resume, near the best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from meshcast.explore.measures import Constraints, Known, objective_named
from meshcast.explore.point import Outcome, Point
from meshcast.explore.sampling import Sampled
from meshcast.explore.search import Found
from meshcast.explore.space import Space, SpaceAxis
from meshcast.explore.work import Answer, SearchWork
from meshcast.zoo import Plan

pytest.importorskip("optuna")

KNOWN = Known(devices=1, units=1.0, capacity_bytes=1.0)
# A bowl of 10,000 points: time has its least at (60, 25), energy where both are small; 7 in 100 points do not run.
BOWL = Space(
    model="gpt2-tiny",
    asked={"on": "h100-sxm"},
    axes=(SpaceAxis(name="set.a", values=tuple(range(100))), SpaceAxis(name="set.b", values=tuple(range(100)))),
)
PLANS = Space(
    model="gpt2-tiny", asked={"on": "dgx-h100", "devices": 8, "settings": {"batch": "16", "layers": "8"}}, plans={}
)


class Bowl:
    """An engine that knows the bowl, and counts what it is asked; plans are as fast as their microbatches are large."""

    def __init__(self, *, last: int | None = None) -> None:
        self.asked: list[int] = []
        self._last = last

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        for number, work in enumerate(works):
            if self._last is not None and len(self.asked) == self._last:
                raise KeyboardInterrupt
            self.asked.append(work.point.number)
            yield number, _outcome(work.point)

    def close(self) -> None: ...


def _outcome(point: Point) -> Outcome:
    if point.plan is not None:
        return Outcome(status="answered", step_time_s=1 / Plan.parse(point.plan).mbs, energy_j=1.0, devices=8)
    a, b = int(point.settings["a"]), int(point.settings["b"])
    if (a + b) % 14 == 3:
        return Outcome(status="infeasible", memory_bytes=2, capacity_bytes=1)
    return Outcome(
        status="answered", step_time_s=1 + (a - 60) ** 2 + (b - 25) ** 2, energy_j=1.0 + a + b, devices=1, units_per_s=1
    )


def _sampled(
    sampler: str, engine: Bowl, *, space: Space = BOWL, trials: int = 80, earlier: dict[int, Outcome] | None = None,
    objectives: tuple[str, ...] = ("time",),
) -> list[Found]:  # fmt: skip
    found: list[Found] = []
    Sampled(
        space=space, engine=engine, objectives=[objective_named(name) for name in objectives], sampler=sampler,
        constraints=Constraints(), known_of=lambda _: KNOWN, trials=trials, earlier=earlier or {},
    ).run(found.append)  # fmt: skip
    return found


@pytest.mark.parametrize(("sampler", "objectives"), [("tpe", ("time",)), ("nsga2", ("time", "energy"))])
def test_the_same_space_has_the_same_trials(sampler: str, objectives: tuple[str, ...]) -> None:
    first, second = Bowl(), Bowl()
    one = _sampled(sampler, first, objectives=objectives)
    two = _sampled(sampler, second, objectives=objectives)
    assert first.asked == second.asked
    assert one == two
    assert len(set(first.asked)) == len(first.asked) == 80, "each point once"


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_a_run_that_was_ended_goes_on_to_the_same_answers(sampler: str) -> None:
    whole = Bowl()
    everything = _sampled(sampler, whole)
    with pytest.raises(KeyboardInterrupt):
        _sampled(sampler, cut := Bowl(last=37))
    kept = {number: _outcome(_point(everything, number)) for number in cut.asked}
    again = Bowl()
    assert _sampled(sampler, again, earlier=kept) == everything
    assert sorted([*cut.asked, *again.asked]) == sorted(whole.asked), "nothing is predicted twice"


def _point(found: list[Found], number: int) -> Point:
    return next(each.point for each in found if each.point.number == number)


def test_tpe_comes_nearer_than_as_many_draws_by_lot() -> None:
    found = _sampled("tpe", Bowl(), trials=120)
    best = min(each.outcome.step_time_s for each in found if each.outcome.step_time_s is not None)
    # Of 120 draws by lot the best is, in the mean, the best hundred-and-twentieth part of the bowl: 1 + 10,000 / (120 pi).
    assert best < 1 + 10_000 / (120 * 3.1416)


def test_a_front_of_two_objectives_is_sampled_on_both_sides() -> None:
    found = [each.outcome for each in _sampled("nsga2", Bowl(), trials=150, objectives=("time", "energy"))]
    allowed = [(o.step_time_s, o.energy_j) for o in found if o.step_time_s is not None and o.energy_j is not None]
    fast, frugal = min(allowed), min(allowed, key=lambda each: each[1])
    assert fast[0] < frugal[0]
    assert frugal[1] < fast[1]


def test_plans_are_sampled_by_their_keys() -> None:
    engine = Bowl()
    found = _sampled("tpe", engine, space=PLANS, trials=25)
    plans = [Plan.parse(each.point.plan or "") for each in found]
    listed: list[Any] = [Plan.parse(point.plan or "") for point in PLANS.points()]
    assert all(listed[number] == plan for number, plan in zip(engine.asked, plans, strict=True))
    assert len({plan.mbs for plan in plans}) > 1
    assert len(found) == 25
