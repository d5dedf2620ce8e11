"""Pauses before launches stand where they are in a step: in every turn of a loop, and nothing but loops gets longer."""

from __future__ import annotations

import itertools

import pytest

from meshcast import prepare
from meshcast.options.options import Options
from meshcast.simulate import Repeat, Timeline

SETTINGS = {"batch": "8", "seq": "64"}


def idle_between(timeline: Timeline) -> float:
    """Seconds of a block in which nothing runs before its last kernel ends."""
    idle = last = 0.0
    for span in sorted(timeline.spans, key=lambda span: span.start):
        idle += max(0.0, span.start - last)
        if isinstance(span, Repeat):
            idle += span.trips * idle_between(span.body)
        last = max(last, span.end)
    return idle


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("llama3-tiny", Options(on="dgx-h100", plan="fsdp=4,tp=2", settings=SETTINGS)),
        ("resnet50", Options(on="h200", lowering="modelled")),
    ],
)
def test_pauses_are_inside_of_the_step(target: str, options: Options) -> None:
    run = prepare(target, options)
    alone, found = run.simulator.run(run.kernels, run.network), run.device_timeline
    assert run.pauses > 0
    assert found.duration == alone.duration + run.pauses
    assert idle_between(found) - idle_between(alone) == pytest.approx(run.pauses)
    assert sum(each.seconds for each in found.critical) == pytest.approx(found.duration)
    assert found.breakdown.total == pytest.approx(found.duration)
    assert found.breakdown.idle - alone.breakdown.idle == pytest.approx(run.pauses)


def test_what_runs_lasts_as_long_and_keeps_its_order() -> None:
    run = prepare("llama3-tiny", Options(on="dgx-h100", plan="fsdp=4,tp=2", settings=SETTINGS))
    alone, found = run.simulator.run(run.kernels, run.network), run.device_timeline
    for (before, count), (after, again) in zip(alone.walk(), found.walk(), strict=True):
        assert (before.kernel, before.stream, count) == (after.kernel, after.stream, again)
        assert after.end - after.start == pytest.approx(before.end - before.start)
    loops = [span for span in found.spans if isinstance(span, Repeat) and span.trips]
    assert loops
    for loop in loops:
        assert loop.end - loop.start == pytest.approx(loop.trips * loop.body.duration)
        by_start = sorted(loop.body.spans, key=lambda span: span.start)
        assert by_start[0].start > 0
        for stream in {(span.stream, span.channel) for span in by_start if not isinstance(span, Repeat)}:
            mine = [s for s in by_start if not isinstance(s, Repeat) and (s.stream, s.channel) == stream]
            assert all(two.start >= one.end - 1e-12 for one, two in itertools.pairwise(mine))
