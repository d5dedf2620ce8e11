"""Points of which only hardware differs: what is kept of one for the next changes no bit of it."""

from __future__ import annotations

import random

import pytest

from meshcast.estimate.known_answers import forget_answers
from meshcast.explore.evaluating import evaluate
from meshcast.explore.point import Outcome, Point
from meshcast.jobs.pipeline import job as pipeline_job
from meshcast.jobs.pipeline import part_values
from meshcast.jobs.program import known_steps, timed
from meshcast.jobs.program.run import Run
from meshcast.network import models
from meshcast.results import Timed

NUMBERS = {
    "memory.bandwidth": ("1.1TB/s", "3TB/s", "9.7TB/s"),
    "memory.capacity": ("40GB", "80GB"),
    "compute.clock": ("1.2GHz", "1.98GHz"),
    "power.tdp": ("350W", "700W"),
    "nvlink.link_bandwidth": ("3GB/s", "25GB/s", "90GB/s"),
    "infiniband.link_bandwidth": ("20GB/s", "50GB/s"),
    "infiniband.latency": ("2us", "9us"),
}
PLANS = ("dp=2,tp=2", "pp=2,tp=2,mbs=2", "pp=2,dp=8,zero=1", "fsdp=16,remat=full")
SETTINGS = {"batch": "16", "seq": "64", "layers": "2"}


def forgotten() -> None:
    """Leaves nothing kept of times: the next point is worked out as the first of a process is."""
    forget_answers()
    known_steps.forget_steps()
    models.known_plans.cache_clear()
    part_values._VALUES.clear()
    pipeline_job._READY.clear()


def asked(plan: str, changes: dict[str, str]) -> Point:
    on = "dgx-h100" + "".join(f"+{key}={value}" for key, value in changes.items())
    options = {"on": on, "plan": plan, "settings": SETTINGS, "fidelity": "analytical"}
    return Point(number=0, target="llama3-tiny", asked=options)


def told(outcome: Outcome) -> dict[str, object]:
    return {name: value for name, value in outcome.to_json().items() if name not in ("seconds", "alone")}


@pytest.mark.parametrize("plan", PLANS)
def test_points_in_any_order_are_what_each_is_alone(plan: str) -> None:
    draw = random.Random(plan)
    points = []
    for _ in range(7):
        keys = draw.sample(sorted(NUMBERS), draw.randint(0, 3))
        points.append(asked(plan, {key: draw.choice(NUMBERS[key]) for key in keys}))
    points += draw.sample(points, 3)  # some come again, behind others
    together = [told(evaluate(point)) for point in points]
    for point, found in zip(points, together, strict=True):
        forgotten()
        assert told(evaluate(point)) == found, point.asked["on"]
    assert any(found["step_time_s"] for found in together)


def test_programs_that_do_not_read_a_number_are_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    whole = timed.timed_part

    def counting(run: Run) -> Timed:
        counted.append(run.workload.name)
        return whole(run)

    monkeypatch.setattr(timed, "timed_part", counting)
    forgotten()
    plan = "pp=2,tp=2,mbs=2"  # both stages in one host
    first = evaluate(asked(plan, {"infiniband.link_bandwidth": "20GB/s"}))
    programs = len(counted)
    assert programs > 3
    again = evaluate(asked(plan, {"infiniband.link_bandwidth": "50GB/s"}))
    assert len(counted) == programs
    assert again.step_time_s == first.step_time_s
    slower = evaluate(asked(plan, {"nvlink.link_bandwidth": "3GB/s"}))
    assert len(counted) > programs
    assert slower.step_time_s is not None
    assert first.step_time_s is not None
    assert slower.step_time_s > first.step_time_s
    timed_so_far = len(counted)
    evaluate(asked(plan, {"memory.bandwidth": "9.7TB/s"}))
    assert len(counted) > timed_so_far


def test_programs_of_stages_are_made_ready_once_for_all_links(monkeypatch: pytest.MonkeyPatch) -> None:
    ready: list[object] = []
    whole = pipeline_job.PipelineJob._made_ready

    def counting(job: pipeline_job.PipelineJob, target: object) -> tuple[Run, tuple[str, ...]]:
        ready.append(target)
        return whole(job, target)

    monkeypatch.setattr(pipeline_job.PipelineJob, "_made_ready", counting)
    forgotten()
    plan = "pp=2,tp=2,mbs=2"
    evaluate(asked(plan, {}))
    programs = len(ready)
    assert programs == 6
    for rate in ("3GB/s", "90GB/s"):
        evaluate(asked(plan, {"nvlink.link_bandwidth": rate}))
    assert len(ready) == programs
    evaluate(asked(plan, {"memory.bandwidth": "1.1TB/s"}))
    assert len(ready) == 2 * programs
