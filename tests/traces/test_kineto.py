"""Kineto's JSON: what Chrome's viewer wants, and what Holistic Trace Analysis makes of it against our own breakdown."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from meshcast import prepare
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.hardware import load_device
from meshcast.hardware.host_link import LINK_SHARE
from meshcast.jobs.traced import find_traces
from meshcast.options.options import Options
from meshcast.traces import kineto, link_traces, understood
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest
from meshcast.traces.slices import COPY_TRACK, Description, Slice, laned
from meshcast.traces.timelines import job_timeline
from tests.traces.recorded.recordings import profile, write
from tests.traces.trace_processor import queried

SETTINGS = {"batch": "8", "seq": "64"}


def options(plan: str) -> Options:
    return Options(on="dgx-h100", plan=plan, settings=SETTINGS)


def written(out: Path, plan: str, **request: Any) -> dict[str, Any]:
    asked = TraceRequest(target="llama3-tiny", options=options(plan), out=out, **request)
    return dict(write_trace("kineto", asked).summary)


def analysed(*folders: Path, recordings: Path) -> list[dict[str, Any]]:
    """What Holistic Trace Analysis says about each folder of traces, and of times of one of recordings."""
    python = os.environ.get("MESHCAST_HTA_PYTHON", "")
    if not Path(python).is_file():
        if importlib.util.find_spec("hta") is None:
            pytest.skip("Holistic Trace Analysis is not installed: make test installs it")
        python = sys.executable
    script = Path(__file__).with_name("hta_process.py")
    command = [python, str(script), *map(str, folders), "--times", str(recordings)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()[-len(folders) - 1 :]]


class Analysed(NamedTuple):
    """A program, a pipeline and a recording by hand, with folders, analysed by one process: it takes seconds to load."""

    program: dict[str, Any]
    pipeline: dict[str, Any]
    folder: Path
    summary: dict[str, Any]
    recorded: dict[str, Any]
    one: Path
    recordings: Path


@pytest.fixture(scope="module")
def hta(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    one, stages = tmp_path_factory.mktemp("program"), tmp_path_factory.mktemp("pipeline")
    written(one / "step.json.gz", "fsdp=4,tp=2")
    summary = written(stages / "step.json.gz", "pp=2,dp=2,tp=2,offload=optimizer", ranks="0,5")
    recordings = tmp_path_factory.mktemp("recorded")
    write(recordings, "rank0.json", profile(0, arrives=42, done=62))
    write(recordings, "rank1.json", profile(1, begins=10, clock=1000, arrives=42, done=52))
    program, pipeline, recorded = analysed(one, stages, recordings=recordings)
    return Analysed(
        program=program, pipeline=pipeline, folder=stages, summary=summary, recorded=recorded, one=one, recordings=recordings
    )  # fmt: skip


def understood_times(profiles: Path, out: Path) -> list[tuple[float, float, float]]:
    """Microseconds in which each rank's device computes, only communicates or copies, and idles, by our own analysis."""
    link_traces([], [profiles], out)
    ranks = understood(find_traces(out / "job")).ranks
    return [(1e6 * one.computing, 1e6 * one.not_computing, 1e6 * one.idle) for one in ranks]


def times_of(found: dict[str, Any]) -> list[tuple[float, float, float]]:
    """The same of Holistic Trace Analysis."""
    rows = sorted(found["temporal"], key=lambda row: int(row["rank"]))
    return [(row["compute_time(us)"], row["non_compute_time(us)"], row["idle_time(us)"]) for row in rows]


def test_recordings_are_understood_as_by_the_analysis(hta: Analysed, tmp_path: Path) -> None:
    """Two ranks by hand, of which one waits in a collective for the other."""
    ours = understood_times(hta.recordings, tmp_path)
    assert times_of(hta.recorded) == [(20, 20, 10), (20, 10, 10)]
    for mine, theirs in zip(ours, times_of(hta.recorded), strict=True):
        assert mine == pytest.approx(theirs, abs=0.01)


def test_a_profile_of_hundreds_of_kernels_is_understood_as_by_the_analysis(hta: Analysed, tmp_path: Path) -> None:
    (ours,) = understood_times(hta.one, tmp_path)
    (theirs,) = times_of(hta.program)
    # What a stream waits for is found by times: of pieces that begin at the same moment one may wait for less than it did.
    assert ours == pytest.approx(theirs, abs=0.003 * sum(theirs))


def test_analysis_of_a_program_gives_our_breakdown(hta: Analysed) -> None:
    found = hta.program
    run = prepare("llama3-tiny", options("fsdp=4,tp=2"))
    parts, timeline = run.timeline.breakdown, run.timeline
    (temporal,) = found["temporal"]
    assert temporal["kernel_time(us)"] == pytest.approx(timeline.duration * 1e6, abs=0.01)
    assert temporal["compute_time(us)"] == pytest.approx(
        (parts.compute + parts.memory + parts.overhead) * 1e6, abs=0.01
    )
    assert temporal["non_compute_time(us)"] == pytest.approx(parts.exposed_communication * 1e6, abs=0.01)
    assert temporal["idle_time(us)"] == pytest.approx(parts.idle * 1e6, abs=0.01)
    sending = sorted((each.start, each.end) for each in job_slices("fsdp=4,tp=2") if each.what.exchange)
    busy, last = 0.0, 0.0
    for start, end in sending:
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    overlap = 100 * (1 - parts.exposed_communication / busy)
    assert found["overlap"][0]["comp_comm_overlap_pctg"] == pytest.approx(overlap, abs=0.02)
    ours: dict[str, float] = {}
    for each in job_slices("fsdp=4,tp=2"):
        if each.what.category == "kernel":
            ours[each.what.name] = ours.get(each.what.name, 0.0) + (each.end - each.start) * 1e6
    theirs = {row["name"]: row["sum (us)"] for row in found["kernels"] if row["kernel_type"] == "COMPUTATION"}
    assert theirs == pytest.approx(ours, abs=0.2)


def job_slices(plan: str) -> list[Any]:
    return list(job_timeline("llama3-tiny", options(plan)).kinds[0].slices(0))


def test_analysis_of_a_pipeline_shows_its_bubble(hta: Analysed) -> None:
    summary, found = hta.summary, hta.pipeline
    assert [Path(name).name for name in summary["files"]] == ["step.0.json.gz", "step.5.json.gz"]
    assert sorted(row["rank"] for row in found["temporal"]) == [0, 5]
    for row in found["temporal"]:
        assert row["idle_time(us)"] > 0
        assert row["kernel_time(us)"] <= summary["step_time_s"] * 1e6 + 0.01
    sent = [row for row in found["kernels"] if row["name"] == "ncclDevKernel_SendRecv"]
    assert len(sent) == 2
    # A device waits for other ranks in its bubble, not for its host.
    waits = {row["idle_category"]: row["idle_time"] for row in found["idle"] if row["stream"] == kineto.COMPUTE_STREAM}
    assert waits.get("host_wait", 0.0) == 0.0
    assert waits["other"] > 100
    # Copies behind the last kernel are on no path for HTA, as no kernel waits for them.
    events = json.loads(gzip.decompress((hta.folder / "step.0.json.gz").read_bytes()))["traceEvents"]
    last = max(event["ts"] + event["dur"] for event in events if event.get("cat") == "kernel")
    assert found["critical_us"] == pytest.approx(last, abs=0.01)
    assert found["launches"] > 100
    assert found["queues"] > 2
    assert found["bandwidths"] == pytest.approx(dict.fromkeys(("Memcpy HtoD", "Memcpy DtoH"), 50.4))


def test_state_that_is_streamed_from_the_host(tmp_path: Path) -> None:
    written(tmp_path / "step.json.gz", "pp=2,dp=2,offload=optimizer", ranks="0")
    events = json.loads(gzip.decompress((tmp_path / "step.json.gz").read_bytes()))["traceEvents"]
    copies = {event["name"]: event for event in events if event.get("cat") == "gpu_memcpy"}
    assert set(copies) == {"Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"}
    link = load_device("h100-sxm").host_bandwidth
    assert link is not None
    for event in copies.values():
        assert event["args"]["memory bandwidth (GB/s)"] == pytest.approx(LINK_SHARE * link / 1e9)
    into, out = copies.values()
    assert into["ts"] + into["dur"] <= out["ts"] + out["dur"]


@pytest.mark.parametrize("plan", ["fsdp=4,tp=2", "pp=2,dp=2,offload=optimizer"])
def test_perfetto_opens_it(tmp_path: Path, plan: str) -> None:
    """Its processor drops events that overlap on a thread, and counts them."""
    summary = written(tmp_path / "step.json.gz", plan, ranks="0")
    slices, wrong, names, late = queried(
        tmp_path / "step.json.gz",
        "select count(*) as n from slice where category in ('kernel', 'gpu_memcpy')",
        "select name, value from stats where severity != 'info' and value > 0",
        "select distinct process.name from thread_track join thread using (utid) join process using (upid) order by pid",
        "select count(*) as n from slice where depth > 2 or dur < 0",
    )
    assert slices == [{"n": summary["slices"]}]
    assert wrong == []
    assert [row["name"].rpartition(":")[2] for row in names][-1] == " its host"
    assert late == [{"n": 0}]


def test_launches_come_before_what_they_launch() -> None:
    what = Description(name="kernel", category="kernel")
    spans = [(0.0, 1e-6), (1e-6, 4e-6), (4e-6, 5e-6)]
    # The second begins 1 us after the step, 3 us after the host: two launches are done by then.
    assert kineto.launch_pace([Slice(what=what, track="compute", start=a, end=b) for a, b in spans]) == pytest.approx(
        1.5
    )
    assert kineto.launch_pace([]) == kineto.LAUNCH_US


@pytest.mark.parametrize("unroll", [True, False])
def test_fields(tmp_path: Path, unroll: bool) -> None:
    written(tmp_path / "step.json", "fsdp=4,tp=2", unroll=unroll, ranks="3")
    text = (tmp_path / "step.json").read_text()
    assert re.search(r'"rank":\s+(\d+)', text.splitlines()[1])[1] == "3"  # type: ignore[index]  # as HTA looks for it
    trace = json.loads(text)
    assert trace["distributedInfo"] == {"backend": "nccl", "rank": 3, "world_size": 8}
    events = trace["traceEvents"]
    launched: dict[int, dict[str, float]] = {}
    for event in events:
        assert event["ph"] in ("X", "M", "C")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            if event["cat"] not in ("cpu_op", "user_annotation"):
                launched.setdefault(event["args"]["correlation"], {})[event["cat"]] = event["ts"]
    assert all(set(each) == {"cuda_runtime", "kernel"} for each in launched.values())
    assert all(each["cuda_runtime"] <= each["kernel"] for each in launched.values())
    collectives = [e["args"] for e in events if e["name"].startswith("nccl")]
    assert {"allreduce", "_allgather_base", "_reduce_scatter_base"} == {args["Collective name"] for args in collectives}
    for args in collectives:
        ranks = json.loads(args["Process Group Ranks"])
        assert 3 in ranks
        assert args["Group size"] == len(ranks)
    gathered = next(args for args in collectives if args["Collective name"] == "_allgather_base")
    assert gathered["Out msg nelems"] == 4 * gathered["In msg nelems"]
    assert gathered["dtype"] == "BFloat16"
    assert json.loads(gathered["Process Group Ranks"]) == [1, 3, 5, 7]
    assert {e["name"] for e in events if e["ph"] == "C"} >= {"memory", "power", "sent over nvlink"}
    # Slices of a stream follow each other: viewers take what overlaps on a thread for damaged.
    ends: dict[int, float] = {}
    for event in sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"]):
        assert event["ts"] >= ends.get(event["tid"], 0.0) - 0.0015
        ends[event["tid"]] = event["ts"] + event["dur"]
    # Two turns of two turns inside: folded, one launch stands for all of them.
    folded = {e["args"].get("launches", 1) for e in events if e.get("cat") == "kernel"}
    assert folded == ({1} if unroll else {1, 2, 4})


def test_folding_keeps_times(tmp_path: Path) -> None:
    seconds = []
    for unroll in (True, False):
        job = job_timeline("llama3-tiny", options("fsdp=4,tp=2"), unroll=unroll)
        slices = [each for each in job.kinds[0].slices(0) if each.what.category == "kernel"]
        assert max(each.end for each in slices) <= job.step_s
        seconds.append((sum(each.end - each.start for each in slices), sum(each.turns for each in slices)))
    assert seconds[0] == pytest.approx(seconds[1])


def test_copies_and_what_lies_beside_them(tmp_path: Path) -> None:
    """A scheduled program of the TPU compiler's, with copies that run beside compute."""
    program = Path(__file__).parents[1] / "fixtures" / "tpu_chain.hlo"
    write_trace("kineto", TraceRequest(target=program, options=Options(on="tpu-v6e"), out=tmp_path / "step.json"))
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    (copy,) = [event for event in events if event.get("cat") == "gpu_memcpy"]
    assert copy["name"].startswith("Memcpy")
    assert copy["args"]["stream"] != kineto.COMPUTE_STREAM


def test_copies_at_once_have_tracks_of_their_own() -> None:
    what = Description(name="copy", category="copy")
    spans = [(0.0, 3.0), (1.0, 2.0), (2.0, 4.0), (2.5, 3.0), (4.0, 5.0)]
    found = laned(Slice(what=what, track=COPY_TRACK, start=start, end=end) for start, end in spans)
    assert [each.track for each in found] == ["copies", "copies 2", "copies 2", "copies 3", "copies"]


def test_traces_are_not_drawn(tmp_path: Path) -> None:
    (tmp_path / "job.0.et").write_bytes(b"")
    with pytest.raises(UnsupportedError, match="a trace is not drawn"):
        job_timeline(tmp_path / "job.0.et", Options(on="dgx-h100"))


def test_names_that_are_taken_for_something_else() -> None:
    assert kineto._name("gemm:roadmap") == "gemm:road_map"
    for name in ("nccl_like", "my_Memcpy", "roadmap", "hipster", "gradSync"):
        changed = kineto._name(name)
        assert not kineto.MISTAKEN.search(changed), changed
    assert kineto._name("gemm:dot_general") == "gemm:dot_general"


def test_places(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no name that its readers take"):
        written(tmp_path / "step.txt", "fsdp=2")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match=r"file is no folder"):
        written(file / "new" / "step.json", "fsdp=2")
    file.unlink()
    with pytest.raises(UsageError, match=r"standard output"):
        written(Path("-"), "fsdp=2")
    with pytest.raises(UsageError, match=r"no rank 2 among 2"):
        written(tmp_path / "step.json", "fsdp=2", ranks="2")
    with pytest.raises(UsageError, match=r"knows no dedup"):
        written(tmp_path / "step.json", "fsdp=2", dedup=True)
    assert list(tmp_path.iterdir()) == []
    written(tmp_path / "step.json.gz", "fsdp=2", ranks="all")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.0.json.gz", "step.1.json.gz"]
    assert json.loads(gzip.decompress((tmp_path / "step.1.json.gz").read_bytes()))["distributedInfo"]["rank"] == 1
    written(tmp_path / "missing" / "folder" / "step.json", "fsdp=2")
    assert (tmp_path / "missing" / "folder" / "step.json").is_file()


@pytest.mark.parametrize("plan", ["dp=2", "pp=2"])
def test_ranks_that_are_not_there_are_refused_before_the_prediction(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predicted(self: object, *_: object, **__: object) -> None:
        raise AssertionError("a step was simulated")

    monkeypatch.setattr("meshcast.jobs.program.run.Simulator.__init__", predicted)
    asked = TraceRequest(target="llama3-tiny", options=options(plan), out=tmp_path / "t.json", ranks="0,9999")
    with pytest.raises(UsageError, match="no rank 9999 among 2"):
        write_trace("kineto", asked)
