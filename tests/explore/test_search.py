"""The best-first search finds what trying everything finds, predicts less, and does not depend on who predicts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import UsageError
from meshcast.explore import explore
from meshcast.explore import search as searching
from meshcast.explore.bounds import PlanBound
from meshcast.explore.measures import Constraints, Known, objective_named
from meshcast.explore.point import Outcome, Point
from meshcast.explore.search import BestFirst, Found
from meshcast.explore.space import Combination, Space, SpaceAxis
from meshcast.explore.work import Answer, SearchWork
from meshcast.jobs import LayersCost
from meshcast.zoo import Plan

NOTHING = LayersCost(forward_s=0, backward_s=0, weight_s=0, saved_bytes=0, fixed_bytes=0, flops=0)
KNOWN = Known(devices=8, units=1.0, capacity_bytes=1.0)
SPACE = Space(
    model="gpt2-tiny", asked={"on": "dgx-h100", "devices": 8, "settings": {"batch": "16", "layers": "8"}}, plans={}
)


class Truth:
    """Steps and memory of plans, drawn by lot, and bounds of four levels below them, ever tighter."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _lot(self, plan: str, what: str) -> float:
        # Not by `random.Random`, which takes longer to seed than a search takes for a plan.
        drawn = hashlib.blake2b(f"{self._seed} {plan} {what}".encode(), digest_size=6).digest()
        return int.from_bytes(drawn) / 2**48

    def outcome(self, plan: str) -> Outcome:
        memory = 0.2 + self._lot(plan, "memory")
        fits = memory <= 1
        return Outcome(
            status="answered" if fits else "infeasible",
            # Few values, so that plans tie.
            step_time_s=round(1 + 4 * self._lot(plan, "time"), 1) if fits else None,
            energy_j=round(self._lot(plan, "energy"), 1),
            devices=8,
            memory_bytes=round(memory * 1e9),
            capacity_bytes=10**9,
        )

    def bound(self, plan: str, level: int) -> PlanBound:
        outcome = self.outcome(plan)
        share = (0.2, 0.6, 0.8, 0.9)[level] + 0.1 * self._lot(plan, f"bound {level}")
        return PlanBound(
            time_s=share * (outcome.step_time_s or 1.0), memory_bytes=share * (outcome.memory_bytes or 0) / 1e9
        )


class Counting:
    """An engine that knows the truth and counts."""

    def __init__(self, truth: Truth, *, backwards: bool = False) -> None:
        self.truth, self.backwards, self.predicted = truth, backwards, list[str]()

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        listed = list(enumerate(works))
        for number, work in reversed(listed) if self.backwards else listed:
            if work.kind == "layers":
                yield number, NOTHING
                continue
            assert work.point.plan is not None
            self.predicted.append(work.point.plan)
            yield number, self.truth.outcome(work.point.plan)

    def close(self) -> None: ...


class Bounds:
    """What takes the place of bounds that are worked out."""

    truth: Truth

    def __init__(self, *, combination: Combination, known: Known, found: dict[str, Any]) -> None:
        self.combination, self.known = combination, known

    def wanted(self, plan: Plan, level: int) -> SearchWork | None:
        point = Point(number=-1, target=str(plan.tp), asked={})
        return SearchWork(kind="layers", point=point, layers=level)

    def bound(self, plan: Plan, level: int) -> PlanBound:
        return self.truth.bound(str(plan), level)


class Running(Truth):
    """All of them fit."""

    def outcome(self, plan: str) -> Outcome:
        found = super().outcome(plan)
        memory = (found.memory_bytes or 0) // 2
        return replace(found, step_time_s=1 + 4 * self._lot(plan, "time"), status="answered", memory_bytes=memory)


class Clock:
    """Time that passes where a work is done, and nowhere else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(searching, "Bounder", Bounds)


class Timed:
    """An engine whose works take time."""

    def __init__(self, truth: Truth, clock: Clock) -> None:
        self._counting, self._clock = Counting(truth), clock

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        for number, work in enumerate(works):
            self._clock.now += 1.0 if work.kind == "layers" else 3.0
            for _, answer in self._counting.answers([work]):
                yield number, answer

    def close(self) -> None: ...


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "Bounder", Bounds)


def _search(
    seed: int, *, top: int, objectives: tuple[str, ...] = ("time",), backwards: bool = False
) -> tuple[list[Found], Counting]:
    Bounds.truth = Truth(seed)
    engine = Counting(Bounds.truth, backwards=backwards)
    found: list[Found] = []
    BestFirst(
        space=SPACE, engine=engine, objectives=[objective_named(name) for name in objectives],
        constraints=Constraints(), known_of=lambda _: KNOWN, top=top,
    ).run(found.append)  # fmt: skip
    return found, engine


def searched_by_the_clock(clock: Clock, objectives: tuple[str, ...]) -> None:
    """A whole search of plans that all run, each of whose works takes its time."""
    Bounds.truth = Running(7)
    BestFirst(
        space=SPACE, engine=Timed(Bounds.truth, clock), objectives=[objective_named(name) for name in objectives],
        constraints=Constraints(), known_of=lambda _: KNOWN, top=5,
    ).run(lambda _: None)  # fmt: skip


def _all(seed: int) -> list[tuple[float, float]]:
    truth = Truth(seed)
    outcomes = [truth.outcome(point.plan or "") for point in SPACE.points()]
    return sorted((o.step_time_s, o.energy_j or 0.0) for o in outcomes if o.step_time_s is not None)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), top=st.integers(1, 6))
@pytest.mark.usefixtures("bounds")
def test_the_best_are_those_of_trying_everything(seed: int, top: int) -> None:
    found, engine = _search(seed, top=top)
    times = sorted(each.outcome.step_time_s for each in found if each.outcome.step_time_s is not None)
    every = [step for step, _ in _all(seed)]
    assert times[:top] == every[:top]
    assert len(engine.predicted) == len(set(engine.predicted)), "a point is predicted once"
    assert len(engine.predicted) < len(every) / 2
    # Points whose tightest bound is above the last that is wanted are never needed; beside those that are, a round may have
    # been given out before its first answer came.
    truth = Truth(seed)
    needed = {str(point.plan) for point in SPACE.points() if truth.bound(str(point.plan), 3).time_s <= every[top - 1]}
    assert len(set(engine.predicted) - needed) < searching.ROUND


def test_bounds_within_a_tenth_leave_a_tenth_to_be_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that differ as plans of a large model do, by factors, and bounds that are at worst a tenth below them."""

    class Wide(Truth):
        def outcome(self, plan: str) -> Outcome:
            return replace(super().outcome(plan), step_time_s=4 ** (2 * self._lot(plan, "time")), status="answered")

    monkeypatch.setattr(searching, "Bounder", Bounds)
    for seed in range(5):
        Bounds.truth = truth = Wide(seed)
        engine = Counting(truth)
        found: list[Found] = []
        BestFirst(
            space=SPACE, engine=engine, objectives=[objective_named("time")], constraints=Constraints(),
            known_of=lambda _: replace(KNOWN, capacity_bytes=1e9), top=1,
        ).run(found.append)  # fmt: skip
        every = [truth.outcome(str(point.plan)).step_time_s or 0.0 for point in SPACE.points()]
        assert min(each.outcome.step_time_s or 0.0 for each in found) == min(every)
        assert len(engine.predicted) <= len(every) / 10


def test_a_real_space_is_searched_as_by_trying_all_of_it() -> None:
    """With the bounds themselves, of plans with stages and without, and no step is below the bound that it was left with."""
    space = Space(
        model="gpt2-tiny",
        asked={
            "on": "dgx-h100", "devices": 2, "settings": {"batch": "4", "seq": "64", "layers": "4"},
            "fidelity": "analytical",
        },
        plans={"remat": ("full",), "mbs": (1,), "sp": (False,)},
    )  # fmt: skip
    pruned, every = (explore(space, search=kind, engine="in-process", top=2) for kind in ("best", "exhaustive"))
    assert [each.point.plan for each in pruned.best] == [each.point.plan for each in every.best]
    steps = {each.point.plan: each.outcome.step_time_s for each in every.found}
    assert len({"pp" in str(plan) for plan in steps}) == 2
    assert pruned.tally.below_bounds == 0
    for plan, bound in pruned.left_out:
        step = steps[str(plan)]
        assert step is None or bound.time_s <= step


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), top=st.integers(1, 4), held=st.integers(4, 40))
@pytest.mark.usefixtures("bounds")
def test_a_space_that_is_not_held_is_walked_again_for_what_is_behind(seed: int, top: int, held: int) -> None:
    """The same points come out, each is predicted once, and no more points are held than are allowed."""
    Bounds.truth = Truth(seed)
    engine = Counting(Bounds.truth)
    found: list[Found] = []
    search = BestFirst(
        space=SPACE, engine=engine, objectives=[objective_named("time")], constraints=Constraints(),
        known_of=lambda _: KNOWN, top=top, held=held,
    )  # fmt: skip
    most = 0
    lowest = search._lowest

    def counting(cut: tuple[float, int] | None) -> Any:
        nonlocal most
        heap, more = lowest(cut)
        most = max(most, len(heap))
        return heap, more

    search._lowest = counting  # type: ignore[method-assign]
    search.run(found.append)
    times = sorted(each.outcome.step_time_s for each in found if each.outcome.step_time_s is not None)
    every = [step for step, _ in _all(seed)]
    assert times[:top] == every[:top]
    assert len(engine.predicted) == len(set(engine.predicted))
    assert most <= held
    tally = search.tally
    assert tally.space == len(SPACE) > held
    assert len(search.left_out) <= 2 * held
    refused = sum(not each.allowed for each in found)
    assert tally.evaluated + tally.bounded + tally.infeasible - refused == tally.space


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.usefixtures("bounds")
def test_the_front_of_two_objectives_is_that_of_trying_everything(seed: int) -> None:
    found, _ = _search(seed, top=1, objectives=("time", "energy"))

    def front(points: list[tuple[float, float]]) -> set[tuple[float, float]]:
        return {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}

    mine = [(o.step_time_s, o.energy_j or 0.0) for o in (each.outcome for each in found) if o.step_time_s is not None]
    assert front(mine) == front(_all(seed))


@pytest.mark.usefixtures("bounds")
def test_who_is_predicted_does_not_depend_on_the_order_of_answers() -> None:
    first, second = (sorted(_search(7, top=3, backwards=back)[1].predicted) for back in (False, True))
    assert first == second


@pytest.mark.usefixtures("bounds")
def test_a_step_below_its_bound_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Truth, "bound", lambda self, plan, level: PlanBound(time_s=1.5))
    Bounds.truth = Truth(3)
    search = BestFirst(
        space=SPACE, engine=Counting(Bounds.truth), objectives=[objective_named("time")], constraints=Constraints(),
        known_of=lambda _: KNOWN, top=2,
    )  # fmt: skip
    found: list[Found] = []
    search.run(found.append)
    below = sum((each.outcome.step_time_s or 2.0) < 1.5 for each in found)
    assert search.tally.below_bounds == below > 0


@pytest.mark.usefixtures("bounds")
def test_the_counts_add_up_to_the_space() -> None:
    Bounds.truth = Truth(3)
    engine = Counting(Bounds.truth)
    search = BestFirst(
        space=SPACE, engine=engine, objectives=[objective_named("time")], constraints=Constraints(step_time_s=2.0),
        known_of=lambda _: KNOWN, top=2,
    )  # fmt: skip
    found: list[Found] = []
    search.run(found.append)
    tally = search.tally
    answered = sum(each.allowed for each in found)
    assert tally.space == len(SPACE) == answered + tally.infeasible + tally.bounded
    assert all(each.outcome.step_time_s is not None and each.outcome.step_time_s <= 2 for each in found if each.allowed)


@pytest.mark.parametrize(
    ("name", "value"), [("fidelity", "foo"), ("network", "foo"), ("clocks", "foo"), ("host", "foo")]
)
def test_an_option_that_nothing_takes_is_refused_before_any_point_is_predicted(name: str, value: str) -> None:
    """As the option of all points, and as one value among several."""

    class Nobody(SearchWork):
        def __getattribute__(self, asked: str) -> Any:
            raise AssertionError("a point was asked for")

    with pytest.raises(UsageError, match="foo"):
        explore(replace(SPACE, asked={**SPACE.asked, name: value}), engine=Nobody)  # type: ignore[arg-type]
    swept = replace(SPACE, axes=(SpaceAxis(name=name, values=("auto", value)),))
    with pytest.raises(UsageError):
        explore(swept, engine=Nobody)  # type: ignore[arg-type]
