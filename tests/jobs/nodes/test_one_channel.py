"""A pipeline with one communication under way on each rank: `--channels 1`."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import predict
from meshcast.base.errors import UnsupportedError
from meshcast.hardware.conditions import Conditions
from meshcast.jobs import PipelineJob, resolve_job
from meshcast.options.options import Options
from meshcast.simulate import PipelineRun
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest

SETTINGS = {"batch": "16", "seq": "64", "layers": "4"}


def slow_network(folder: Path, npus: int) -> str:
    path = folder / "network.yml"
    path.write_text(f"topology: [ Ring ]\nnpus_count: [ {npus} ]\nbandwidth: [ 0.05 ]\nlatency: [ 500 ]\n")
    return f"h100-sxm@{path}"


def options(on: str, plan: str, channels: int = 1) -> Options:
    return Options(
        on=on, plan=plan, settings=SETTINGS, network="astra", channels=channels, contention="off", host="off"
    )


def step_of(asked: Options) -> PipelineRun:
    """The tiny model's step in time."""
    job = resolve_job("llama3-tiny", asked)
    assert isinstance(job, PipelineJob)
    return job.run


def test_messages_wait_behind_gradients(tmp_path: Path) -> None:
    asked = options(slow_network(tmp_path, 8), "pp=4,dp=2")
    one, own = predict("llama3-tiny", asked), predict("llama3-tiny", asked.having(channels=0))
    assert one.step_time_s is not None
    assert own.step_time_s is not None
    assert one.step_time_s > 1.005 * own.step_time_s
    assert one.breakdown is not None
    assert one.breakdown.total == pytest.approx(one.step_time_s, rel=1e-9)
    assert one.interval_s is not None
    assert one.interval_s[0] <= one.step_time_s <= one.interval_s[1]
    run = step_of(asked)
    assert run.duration == pytest.approx(one.step_time_s, rel=1e-12)
    for stage in run.stages:
        assert stage.busy + stage.sending + stage.reducing + stage.idle == pytest.approx(run.duration, rel=1e-6)
    assert sum(segment.seconds for segment in run.critical_path) == pytest.approx(run.duration, rel=1e-9)


@pytest.mark.parametrize("plan", ["pp=4", "pp=4,schedule=gpipe", "pp=2,vp=2", "pp=4,schedule=zb-h1"])
def test_a_step_with_nothing_to_wait_for_is_the_same(tmp_path: Path, plan: str) -> None:
    """One stage sends one way at a time here: what it sends back waits for nothing of its own."""
    asked = options("dgx-h100", plan)
    asked = asked.having(network="alpha-beta")
    one, own = (step_of(asked.having(channels=channels)) for channels in (1, 0))
    assert one.duration == pytest.approx(own.duration, rel=1e-3)
    assert one.makespan == pytest.approx(own.makespan, rel=1e-3)
    for mine, theirs in zip(one.stages, own.stages, strict=True):
        assert mine.starts == pytest.approx(theirs.starts, rel=1e-3, abs=2e-6)
        assert mine.busy == pytest.approx(theirs.busy, rel=1e-9)


def test_what_it_does_not_go_with(tmp_path: Path) -> None:
    asked = options("dgx-h100", "pp=2,dp=2")
    with pytest.raises(UnsupportedError, match="not alike"):
        predict("llama3-tiny", asked.having(network="alpha-beta", conditions=Conditions(speed={0: 0.5})))
    request = TraceRequest(target="llama3-tiny", options=asked, out=tmp_path / "step.json")
    with pytest.raises(UnsupportedError, match="channels of their own"):
        write_trace("kineto", request)
