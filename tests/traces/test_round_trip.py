"""Every schedule of a pipeline, exported and read back, is the step that was predicted; and what one step alone takes is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshcast import predict
from meshcast.base.errors import UsageError
from meshcast.jobs import PipelineJob
from meshcast.options.options import Options
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest

SETTINGS = {"batch": "8", "seq": "64", "layers": "8"}


def options(plan: str, **more: object) -> Options:
    return Options(on="dgx-h100", plan=plan, settings=SETTINGS, host="off", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "plan",
    [
        "pp=4,schedule=gpipe",
        "pp=4,schedule=1f1b",
        "pp=4,vp=2",
        "pp=4,schedule=zb-h1",
        "pp=4,schedule=zb-h2",
        "pp=4,schedule=zb-h2,tp=2,dp=2",
        "pp=2,dp=2,zero=1",
    ],
)
def test_the_step_comes_back(tmp_path: Path, plan: str) -> None:
    asked = options(plan)
    out = tmp_path / "job"
    written = write_trace("chakra", TraceRequest(target="llama3-tiny", options=asked, out=out))
    predicted = predict("llama3-tiny", asked).step_time_s
    assert written.summary["step_time_s"] == pytest.approx(predicted, rel=1e-9)
    assert predict(out, on="dgx-h100").step_time_s == pytest.approx(predicted, rel=1e-6)
    alone = json.loads((tmp_path / "job.manifest.json").read_text())["makespan_s"]
    if "zb-h2" in plan:  # stages begin and end at different times, and do not wait for each other in between
        assert alone > written.summary["step_time_s"]
        assert any("one step alone" in line for line in written.lines)
    else:
        assert alone == pytest.approx(predicted, rel=1e-9)
        assert not any("one step alone" in line for line in written.lines)


def test_a_breakdown_of_overlapping_steps_adds_up(tmp_path: Path) -> None:
    out = tmp_path / "job"
    write_trace("chakra", TraceRequest(target="llama3-tiny", options=options("pp=4,schedule=zb-h2"), out=out))
    found = predict(out, on="dgx-h100")
    assert found.breakdown is not None
    assert found.breakdown.total == pytest.approx(found.step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"dedup": True}, "would miss 3 of 4 (1-3): leave out --dedup"), ({"ranks": "1,2"}, "would miss 2 of 4 (0,3)")],
)
def test_what_astra_sim_would_miss_is_said(tmp_path: Path, asked: dict[str, object], said: str) -> None:
    request = TraceRequest(target="llama3-tiny", options=options("dp=4"), out=tmp_path / "new" / "job", **asked)  # type: ignore[arg-type]
    lines = write_trace("chakra", request).lines
    assert any(said in line for line in lines)
    assert not any("workload-configuration" in line for line in lines)


@pytest.mark.parametrize(
    ("asked", "message"), [({"schema": "v9"}, "no schema"), ({"ranks": "0,9999"}, "no rank 9999 among 4")]
)
@pytest.mark.parametrize("plan", ["dp=4", "pp=2,dp=2"])
def test_refused_before_anything_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str, asked: dict[str, object], message: str
) -> None:
    def simulated(*_: object, **__: object) -> None:
        raise AssertionError("predicted before it was refused")

    monkeypatch.setattr("meshcast.traces.formats.program_trace", simulated)
    monkeypatch.setattr(PipelineJob, "assembled", simulated)
    request = TraceRequest(target="llama3-tiny", options=options(plan), out=tmp_path / "job", **asked)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        write_trace("chakra", request)
    assert not list(tmp_path.iterdir())


def test_loops_are_unrolled_while_that_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nodes(**more: object) -> int:
        request = TraceRequest(target="llama3-tiny", options=options("tp=2"), out=tmp_path / "job", **more)  # type: ignore[arg-type]
        written = write_trace("chakra", request)
        assert any("all turns" in line for line in written.lines) == (written.summary["nodes"] < unrolled)
        found: int = written.summary["nodes"]
        return found

    unrolled = 0
    unrolled = nodes(unroll=True)
    assert nodes() == unrolled
    folded = nodes(unroll=False)
    assert folded < unrolled
    assert nodes(dedup=True) == folded
    monkeypatch.setattr("meshcast.traces.formats.MOST_NODES", 2 * unrolled - 1)
    assert nodes() == folded
