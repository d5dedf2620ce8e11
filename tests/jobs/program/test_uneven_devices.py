"""Devices of different speed in predictions, from end to end: what they cost, and what is said where they cost nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import predict, prepare
from meshcast.hardware.conditions import Conditions
from meshcast.jobs.program.run import Run
from meshcast.options.options import Options
from meshcast.simulate.scheduling import SCHEDULERS
from tests.lower.programs import all_reduce_text

OPTIONS = Options(on="dgx-h100", host="off", levers=False)
MODEL = OPTIONS.having(mesh={"fsdp": 4, "tensor": 4}, settings={"batch": "32", "seq": "256"})


def slowed(run: Run, speed: dict[int, float]) -> Run:
    return replace(run, options=run.options.having(conditions=Conditions(speed=speed)))


def step(run: Run) -> float:
    found = run.predict().step_time_s
    assert found is not None
    return found


# Every two of scheduler, channels and contention, each scheduler with two of the four.
PAIRS = [
    (scheduler, channels, "on" if (place + channels) % 2 else "off")
    for place, scheduler in enumerate(name for name in SCHEDULERS if name != "ideal")
    for channels in (0, 1)
]


@pytest.mark.parametrize(("scheduler", "channels", "contention"), PAIRS)
def test_a_device_that_is_a_little_slower_costs_a_little(scheduler: str, channels: int, contention: str) -> None:
    options = MODEL.having(scheduler=scheduler, channels=channels, contention=contention)
    healthy = prepare("llama3-tiny", options)
    little, much = slowed(healthy, {0: 0.98}), slowed(healthy, {0: 0.8})
    assert step(healthy) < step(little) < step(much) < step(healthy) / 0.8
    low, high = little.predict().interval_s or (0, 0)
    assert low < step(little) < high
    if scheduler == "serial":  # nothing is hidden: all that the device takes longer is added
        assert little.ranks is not None
        assert little.delay == pytest.approx(little.ranks.busy.max() - little.ranks.busy.min())


def test_the_ideal_hides_slow_devices_behind_longer_collectives_and_says_so() -> None:
    healthy = prepare("llama3-tiny", MODEL.having(scheduler="ideal"))
    slow = slowed(healthy, {0: 0.98})
    assert step(slow) == step(healthy)
    assert len(about_speed(slow)) == 1


def test_what_would_help_is_asked_of_the_slow_ranks_too() -> None:
    slow = predict("llama3-tiny", MODEL.having(levers=1, conditions=Conditions(speed={0: 0.5})))
    (lever,) = slow.levers
    assert (lever.change, lever.flag) == ("all devices at the same speed", "without --slow")
    assert lever.step_time_s == step(prepare("llama3-tiny", MODEL))


def program(tmp_path: Path, *ops: str, options: Options = OPTIONS) -> Run:
    path = tmp_path / "reduce.mlir"
    path.write_text(all_reduce_text(ops))
    return prepare(path, options)


def about_speed(run: Run) -> list[str]:
    return [warning for warning in run.predict().warnings if warning.startswith("speed")]


def test_speed_that_nobody_waits_for_is_said(tmp_path: Path) -> None:
    """Products beside an all-reduce that takes longer than both."""
    run = program(tmp_path, "reduce", "multiply", "use", options=OPTIONS.having(scheduler="ideal"))
    assert about_speed(run) == []
    assert about_speed(slowed(run, {0: 0.1})) == []  # longer than the all-reduce
    (said,) = about_speed(slowed(run, {0: 0.98, 2: 0.9}))
    assert (
        said
        == "speeds 0.9 to 0.98 of devices 0, 2 have no effect: no rank waits for what is slower: other work takes longer"
    )
    (said,) = about_speed(slowed(run, {1: 1.0}))
    assert said == "speed 1 of device 1 has no effect: it is what a healthy device has"


def test_speed_of_faster_devices(tmp_path: Path) -> None:
    run = program(tmp_path, "multiply", "reduce", "use")
    (said,) = about_speed(slowed(run, {0: 1.5}))
    assert said == "speed 1.5 of device 0 has no effect: the others are no faster"
    (said,) = about_speed(slowed(run, dict.fromkeys(range(4), 1.5)))
    assert "all devices are faster than h100-sxm" in said


def test_speed_where_no_rank_runs(tmp_path: Path) -> None:
    places = tmp_path / "places.txt"
    places.write_text("0 1 2 7")
    run = program(tmp_path, "multiply", "reduce", "use", options=OPTIONS.having(placement=str(places)))
    (said,) = about_speed(slowed(run, {4: 0.5}))
    assert said == "speed 0.5 of device 4 has no effect: no rank of the job runs there"
    assert slowed(run, {7: 0.5}).delay > 0
    assert about_speed(slowed(run, {7: 0.5})) == []


def test_the_host_goes_on_while_devices_wait(tmp_path: Path) -> None:
    """Where the host needs longer than the slowest device, slow devices cost nothing, and that is said."""
    run = program(tmp_path, "multiply", "reduce", "use", options=OPTIONS.having(host="on"))
    slow = slowed(run, {0: 0.9})
    assert slow.delay > 0
    assert run.timeline.duration == run.host
    assert slow.timeline.duration == run.host
    (said,) = about_speed(slow)
    assert "the host needs longer" in said
