"""Engines give every work's answer once, whatever becomes of those who do it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

import pytest

from meshcast.base import Said, UsageError, listening
from meshcast.explore import work as works
from meshcast.explore.engines import engine_named
from meshcast.explore.engines.in_process import InProcess
from meshcast.explore.engines.lanes import TRIES, DiedError, Lanes
from meshcast.explore.engines.processes import Processes
from meshcast.explore.engines.worker import answering
from meshcast.explore.evaluating import options_of
from meshcast.explore.point import Outcome, Point
from meshcast.explore.work import Answer, SearchWork, Worker, answer_json, answer_of, answers_of, works_text


def _work(number: int, family: str = "") -> SearchWork:
    return SearchWork(kind="point", point=Point(number=number, target="none"), family=family)


def _outcome(work: SearchWork) -> Outcome:
    return Outcome(status="answered", step_time_s=float(work.point.number))


def test_every_work_is_answered_once_and_families_stay_together() -> None:
    where: dict[str, set[int]] = {}

    def do(lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        for work in works:
            where.setdefault(work.family, set()).add(lane)
        return [_outcome(work) for work in works]

    lanes = Lanes(3, do)
    works = [_work(number, f"family {number % 3}") for number in range(60)]
    found = list(lanes.answers(iter(works)))
    assert sorted(number for number, _ in found) == list(range(60))
    assert all(isinstance(a, Outcome) and a.step_time_s == number for number, a in found)
    assert len(where) == 3


def test_a_family_that_somebody_else_begins_is_his_own() -> None:
    begun = threading.Event()
    where: dict[str, list[int]] = {}

    def do(lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        for work in works:
            where.setdefault(work.family, []).append(lane)
        if works[0].family == "slow":
            begun.wait(timeout=30)
        elif len(where.get("two", ())) > 3:
            begun.set()
        return [_outcome(work) for work in works]

    lanes = Lanes(2, do)
    lanes._home |= {"slow": 0, "one": 0, "two": 0}
    works = [_work(0, "slow"), *(_work(number, ("one", "two")[number % 2]) for number in range(1, 9))]
    assert sorted(number for number, _ in lanes.answers(works)) == list(range(9))
    assert set(where["one"]) | set(where["two"]) == {1}, "programs of a family are made in one process"


class _Clock:
    """Seconds that pass by the work that is done alone; all lanes look at the same one."""

    def __init__(self) -> None:
        self._now, self._lock = 0.0, threading.Lock()

    def perf_counter(self) -> float:
        return self._now

    def pass_by(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds


@pytest.mark.parametrize(("more", "shared"), [(60, False), (6000, True)])
def test_programs_are_made_again_only_where_that_takes_less_than_waiting(
    monkeypatch: pytest.MonkeyPatch, more: int, shared: bool
) -> None:
    """A family's first work takes 10 s in each process and the others 10 ms: 60 of them are no reason, 60 s of them are."""
    clock, begun, known = _Clock(), set[tuple[int, str]](), threading.Event()
    monkeypatch.setattr("meshcast.explore.engines.lanes.time", clock)

    def do(lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        for work in works:
            new = (lane, work.family) not in begun
            begun.add((lane, work.family))
            clock.pass_by(10.0 if new else 0.01)
            if work.family == "two":
                known.wait(timeout=30)  # the other lane is behind its first work
            elif not new:
                known.set()
        return [_outcome(work) for work in works]

    works = [_work(0, "one"), _work(1, "two"), *(_work(number, "one") for number in range(2, more))]
    assert sorted(number for number, _ in Lanes(2, do).answers(works)) == list(range(more))
    assert len([lane for lane, family in begun if family == "one"]) == 1 + shared


def test_a_work_whose_worker_dies_is_done_again_and_one_that_kills_is_told_so() -> None:
    tried: dict[int, int] = {}

    def do(lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        (work,) = works
        number = work.point.number
        tried[number] = tried.get(number, 0) + 1
        if number == 3 or (number == 5 and tried[number] == 1):
            raise DiedError("SIGKILL")
        return [_outcome(work)]

    found = dict(Lanes(2, do).answers(_work(number) for number in range(8)))
    assert set(found) == set(range(8))
    poisoned, retried = found[3], found[5]
    assert isinstance(poisoned, Outcome)
    assert isinstance(retried, Outcome)
    assert (poisoned.status, poisoned.code) == ("failed", "crashed")
    assert "SIGKILL" in (poisoned.error or "")
    assert tried[3] == TRIES
    assert (retried.status, tried[5]) == ("answered", 2)


def test_quick_works_of_a_family_go_together_in_their_order_and_none_is_blamed_for_another() -> None:
    bundles: list[list[int]] = []

    def do(lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        numbers = [work.point.number for work in works]
        bundles.append(numbers)
        assert len({work.family for work in works}) == 1
        if 77 in numbers:
            raise DiedError("SIGSEGV")
        return [_outcome(work) for work in works]

    works = [_work(number, "quick" if number < 300 else "other") for number in range(400)]
    found = dict(Lanes(2, do).answers(works))
    assert sorted(found) == list(range(400))
    assert max(map(len, bundles)) > 16
    assert all(numbers == sorted(numbers) for numbers in bundles)
    assert [number for number, each in found.items() if each.status == "failed"] == [77]  # type: ignore[union-attr]
    assert bundles.count([77]) == TRIES


@pytest.mark.parametrize(("pace", "share"), [(0.001, 100), (1.0, 50), (None, 50)])
def test_the_last_quick_works_are_shared_out_once(pace: float | None, share: int) -> None:
    """Each of two lanes gets half of them, and not half of what is left again and again, unless they may take long."""
    lanes = Lanes(2, lambda lane, works: [])
    lanes._under_way["of one kind"] = 100
    if pace is not None:
        lanes._paces["of one kind"] = pace
    assert lanes._share("of one kind", 100) == share


def test_works_are_taken_from_their_source_as_they_are_needed() -> None:
    taken = 0

    def source() -> object:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield _work(number)

    answers = Lanes(2, lambda lane, works: [_outcome(work) for work in works]).answers(source())  # type: ignore[arg-type]
    next(answers)
    assert taken < 50


def test_a_bug_in_an_engine_is_no_answer() -> None:
    def do(lane: int, works: Sequence[SearchWork]) -> list[Answer]:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        list(Lanes(1, do).answers([_work(0)]))


POINT = Point(
    number=0,
    target="gpt2-tiny",
    asked={"on": "h100-sxm", "settings": {"batch": "4"}, "plan": "mbs=2", "fidelity": "roofline"},
)


def test_a_process_answers_as_this_one_does() -> None:
    works = [
        SearchWork(kind="point", point=POINT),
        SearchWork(kind="layers", point=POINT),
        SearchWork(kind="point", point=Point(number=1, target="no-such-model", asked={"on": "h100-sxm"})),
    ]
    here = dict(InProcess().answers(works))
    processes = Processes(workers=1)
    try:
        there = dict(processes.answers(works))
    finally:
        processes.close()
    for number, mine in here.items():
        theirs = there[number]
        assert type(mine) is type(theirs)
        if isinstance(mine, Outcome):
            assert isinstance(theirs, Outcome)
            assert {**theirs.to_json(), "seconds": 0} == {**mine.to_json(), "seconds": 0}
        else:
            assert mine == theirs
    assert here[2].status in ("failed", "unsupported")  # type: ignore[union-attr]


def test_a_work_in_this_process_does_not_say_how_far_the_search_is() -> None:
    """It would be told in the search's place: of a piece of it, as a share of the whole."""
    heard: list[Said] = []
    with listening(heard.append):
        assert dict(InProcess().answers([SearchWork(kind="point", point=POINT)]))
    assert heard == []


def test_kernels_of_points_are_modelled_unless_a_compiler_is_asked_for() -> None:
    assert options_of(POINT.asked).lowering.kernels == "modelled"
    assert options_of({**POINT.asked, "lowering": "auto"}).lowering.kernels == "auto"


def test_works_and_answers_are_the_same_behind_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    work = SearchWork(kind="layers", point=POINT, layers=2, period=1, family="x")
    assert SearchWork.from_json(json.loads(json.dumps(work.to_json()))) == work
    froze: list[int] = []
    monkeypatch.setattr(works, "kept_for_good", lambda: froze.append(1))
    answer = answering(Worker())
    for _ in range(2):
        (found,) = answers_of(answer({}, works_text([work]).encode()))
        assert answer_of(json.loads(json.dumps(answer_json(found)))) == found
    assert froze == [1]  # when everything is loaded


def test_an_engine_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="no engine 'threads'"):
        engine_named("threads")
