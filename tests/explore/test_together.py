"""Points of which only hardware differs, evaluated together: each is what it is alone, to the last bit."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from meshcast.base import OneByOneError
from meshcast.estimate import at_points
from meshcast.explore import evaluating, together
from meshcast.explore.evaluating import evaluate
from meshcast.explore.point import Outcome, Point
from meshcast.explore.search import Tally
from meshcast.explore.together import evaluate_many
from meshcast.jobs import resolve_job
from tests.explore.test_retiming import PLANS, asked, forgotten, told

RANGES = {
    "memory.bandwidth": (1100.0, 9700.0, "GB/s"),
    "compute.clock": (1.2, 1.98, "GHz"),
    "power.tdp": (350.0, 700.0, "W"),
    "matrix.bf16": (400.0, 2000.0, "TFLOP/s"),
    "cache.capacity": (5.0, 90.0, "MB"),
    "memory.capacity": (40.0, 90.0, "GB"),
    "nvlink.link_bandwidth": (3.0, 90.0, "GB/s"),
    "infiniband.link_bandwidth": (20.0, 60.0, "GB/s"),
    "infiniband.latency": (2.0, 9.0, "us"),
    "nvlink.latency": (0.5, 9.0, "us"),
    "compute.cores": (40, 260, " SM"),
    "communication.cores": (4, 40, " SM"),
}


def drawn(draw: random.Random, keys: list[str]) -> dict[str, str]:
    """Some numbers of hardware, by lot; whole ones where cores are counted."""
    found: dict[str, str] = {}
    for key in keys:
        low, high, unit = RANGES[key]
        number = str(draw.randint(int(low), int(high))) if "cores" in key else f"{draw.uniform(low, high):.4f}"
        found[key] = number + unit
    return found


@pytest.mark.parametrize("plan", PLANS)
def test_points_together_are_what_each_is_alone(plan: str) -> None:
    draw = random.Random(plan)
    forgotten()
    for _ in range(4):
        keys = draw.sample(sorted(RANGES), draw.randint(1, 3))
        points = [asked(plan, drawn(draw, keys)) for _ in range(12)]
        points += draw.sample(points, 2)  # some come twice
        found = evaluate_many(points)
        forgotten()
        for point, outcome in zip(points, found, strict=True):
            assert told(outcome) == told(evaluate(point)), point.asked["on"]
            assert outcome.answered


def test_points_of_several_questions_keep_their_places() -> None:
    draw = random.Random(3)
    points = [
        asked(
            PLANS[number % 2],
            drawn(draw, ["nvlink.link_bandwidth"]) | ({"memory.capacity": "1MB"} if number % 5 == 4 else {}),
        )
        for number in range(20)
    ]
    points.insert(7, Point(number=0, target="no-such-model", asked={"on": "dgx-h100"}))
    found = evaluate_many(points)
    assert [told(outcome) for outcome in found] == [told(evaluate(point)) for point in points]
    assert {outcome.status for outcome in found} == {"answered", "infeasible", "failed"}


@pytest.mark.parametrize("plan", PLANS[1:3])
def test_pipelines_are_not_asked_point_by_point(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[Point] = []

    def counted(point: Point) -> Outcome:
        alone.append(point)
        return evaluate(point)

    monkeypatch.setattr(together, "evaluate", counted)
    for key, unit in (
        ("nvlink.link_bandwidth", "GB/s"),
        ("memory.bandwidth", "GB/s"),
        ("infiniband.link_bandwidth", "GB/s"),
    ):
        first = {"nvlink.link_bandwidth": 20.0, "memory.bandwidth": 3000.0, "infiniband.link_bandwidth": 40.0}[key]
        points = [asked(plan, {key: f"{first * (1 + 0.001 * step):.6f}{unit}"}) for step in range(16)]
        assert all(outcome.answered for outcome in evaluate_many(points))
    assert not alone


@pytest.mark.parametrize("plan", PLANS)
def test_one_job_is_made_for_all_points(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One on the first point's hardware, and one on that of all of them, however many there are."""
    made: list[object] = []

    def counted(*given: Any, **more: Any) -> Any:
        made.append(given)
        return resolve_job(*given, **more)

    monkeypatch.setattr(evaluating, "resolve_job", counted)
    points = [asked(plan, {"memory.bandwidth": f"{3 + number / 8}TB/s"}) for number in range(12)]
    found = evaluate_many(points)
    assert len(made) == 2
    assert all(each.answered and each.alone is None for each in found)


def test_more_bandwidth_is_never_slower() -> None:
    for key, first in (("nvlink.link_bandwidth", 3.0), ("infiniband.link_bandwidth", 10.0)):
        points = [asked("pp=2,dp=8,zero=1", {key: f"{first * 1.15**step:.5f}GB/s"}) for step in range(24)]
        seconds = [outcome.step_time_s or 0.0 for outcome in evaluate_many(points)]
        assert min(seconds) > 0
        assert all(slower >= faster for slower, faster in pairwise(seconds)), key


def tallied(points: list[Point]) -> Tally:
    """The tally of a search that has predicted some points."""
    tally = Tally()
    for outcome in evaluate_many(points):
        tally.note(Outcome.from_json(outcome.to_json()), allowed=outcome.answered)
    return tally


def test_points_that_cannot_be_asked_at_once_say_why_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [asked(PLANS[0], {"memory.bandwidth": f"{3000 + step}GB/s"}) for step in range(4)]
    other = [asked(PLANS[0], {"nvlink.size": text}) for text in ("4", "2")]  # nodes of another kind
    assert tallied([*some, *other]).alone == {}, "too few to be worth it is no reason to tell of"

    def refused(*_: object) -> None:
        raise OneByOneError("rounded")

    monkeypatch.setattr(together, "several", refused)
    assert tallied([*some, *other]).alone == {"rounded": 6}


@pytest.mark.parametrize("plan", PLANS)
def test_nodes_of_several_sizes_are_sets_of_their_own(plan: str) -> None:
    draw = random.Random(plan)
    forgotten()
    points = [
        asked(plan, drawn(draw, ["memory.bandwidth", "compute.cores"]) | {"nvlink.size": draw.choice("48")})
        for _ in range(16)
    ]
    found = evaluate_many(points)
    assert not any(outcome.alone for outcome in found)
    forgotten()
    assert [told(outcome) for outcome in found] == [told(evaluate(point)) for point in points]


@pytest.mark.parametrize(
    ("error", "told"), [(OneByOneError("rounded"), "rounded"), (TypeError("oh"), "bug: TypeError: oh")]
)
def test_a_way_that_fails_is_told_and_points_are_answered(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [asked(PLANS[0], {"memory.bandwidth": f"{3000 + step}GB/s"}) for step in range(5)]

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(together, "several", broken)
    found = evaluate_many(points)
    assert [outcome.alone for outcome in found] == [told] * 5
    assert [outcome.step_time_s for outcome in found] == [evaluate(point).step_time_s for point in points]
    assert "alone" not in found[0].columns()


@pytest.mark.parametrize(
    "keys",
    [
        ["memory.bandwidth"],
        ["compute.clock"],
        ["memory.bandwidth", "nvlink.link_bandwidth"],
        ["matrix.bf16"],
        ["cache.capacity", "memory.capacity"],
        ["compute.cores"],
        ["compute.cores", "communication.cores", "memory.bandwidth"],
    ],
)
def test_kernels_are_estimated_on_all_devices_at_once(keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten()
    draw = random.Random(4)
    points = [asked(PLANS[1], drawn(draw, keys)) for _ in range(12)]

    def alone(*_: object, **__: object) -> None:
        raise AssertionError("asked device by device")

    monkeypatch.setattr(at_points, "estimate_kernels", alone)
    found = evaluate_many(points)
    monkeypatch.undo()
    assert not any(outcome.alone for outcome in found)
    forgotten()
    assert [told(outcome) for outcome in found] == [told(evaluate(point)) for point in points]


@pytest.mark.parametrize(
    ("plan", "alike", "keys"), [(PLANS[0], 2, ["matrix.bf16"]), (PLANS[1], 2, []), (PLANS[0], 40, [])]
)
def test_many_numbers_of_cores(plan: str, alike: int, keys: list[str]) -> None:
    """More points than are looked at together, some with as many cores as others, up to all of those that are."""
    forgotten()
    draw = random.Random(plan)
    points = [asked(plan, {"compute.cores": f"{40 + step // alike} SM", **drawn(draw, keys)}) for step in range(79)]
    found = evaluate_many(points)
    assert not any(outcome.alone for outcome in found)
    forgotten()
    for place in draw.sample(range(79), 12):
        assert told(found[place]) == told(evaluate(points[place])), points[place].asked["on"]


def test_what_fits_and_what_does_not_are_told_apart() -> None:
    """llama3-tiny holds megabytes: of capacities around that some points run, and the others say what they lack."""
    forgotten()
    points = [asked(PLANS[0], {"memory.capacity": f"{2**step}MB"}) for step in range(14)]
    found = evaluate_many(points)
    forgotten()
    assert [told(outcome) for outcome in found] == [told(evaluate(point)) for point in points]
    assert {outcome.status for outcome in found} == {"answered", "infeasible"}
