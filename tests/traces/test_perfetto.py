"""Perfetto traces, read back as protobuf: slices, counters and arrows against the prediction."""

from __future__ import annotations

import gzip
import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast import predict
from meshcast.base.errors import UnsupportedError
from meshcast.hardware import load_device
from meshcast.options.options import Options
from meshcast.results import Prediction
from meshcast.traces import timelines
from meshcast.traces.formats import write_trace
from meshcast.traces.levels import limited, summed
from meshcast.traces.request import TraceRequest
from meshcast.traces.slices import Level
from tests.jobs.pipeline.as_files import write_as_files
from tests.traces.trace_processor import queried

SETTINGS = {"batch": "8", "seq": "64", "layers": "4"}
PLANS = ["fsdp=4,tp=2", "pp=2,dp=2,tp=2", "pp=2,dp=2,zero=1", "pp=2,vp=2,dp=2"]


def written(out: Path, plan: str, **request: Any) -> Any:
    options = Options(on="dgx-h100", plan=plan, settings=SETTINGS)
    return write_trace("perfetto", TraceRequest(target="llama3-tiny", options=options, out=out, **request))


# A schedule that splits the backward pass, without a barrier between steps; written as a file.
ZERO_BUBBLE = Path(__file__).parents[2] / "examples" / "pipeline" / "tiny_zero_bubble.toml"


class Opened:
    """A trace as a viewer has it: tracks with slices (start, end, name, facts), counters, arrows."""

    def __init__(self, path: Path) -> None:
        messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        data = path.read_bytes()
        trace = messages.Trace.FromString(gzip.decompress(data) if path.suffix == ".gz" else data)
        event_type = messages.TrackEvent
        self.processes: dict[int, str] = {}
        self.tracks: dict[int, tuple[int, str]] = {}
        self.slices: dict[int, list[tuple[int, int, str, dict[str, Any]]]] = defaultdict(list)
        self.values: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self.begins: dict[int, list[int]] = defaultdict(list)  # tracks at which an arrow starts
        self.ends: dict[int, list[int]] = defaultdict(list)
        names: dict[str, dict[int, str]] = defaultdict(dict)
        stacks: dict[int, list[tuple[int, str, dict[str, Any]]]] = defaultdict(list)
        for packet in trace.packet:
            for what in ("event_names", "debug_annotation_names"):
                names[what] |= {entry.iid: entry.name for entry in getattr(packet.interned_data, what)}
            for entry in packet.interned_data.debug_annotation_string_values:
                names["values"][entry.iid] = entry.str.decode()
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                if track.HasField("process"):
                    self.processes[track.uuid] = track.process.process_name
                else:
                    self.tracks[track.uuid] = track.parent_uuid, track.name or track.thread.thread_name
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            assert event.track_uuid in self.tracks
            if event.type == event_type.TYPE_SLICE_BEGIN:
                facts = {
                    names["debug_annotation_names"][each.name_iid]: names["values"][each.string_value_iid]
                    if each.HasField("string_value_iid")
                    else each.int_value or each.double_value
                    for each in event.debug_annotations
                }
                stacks[event.track_uuid].append((packet.timestamp, names["event_names"][event.name_iid], facts))
                for flow in event.flow_ids:
                    self.begins[flow].append(event.track_uuid)
                for flow in event.terminating_flow_ids:
                    self.ends[flow].append(event.track_uuid)
            elif event.type == event_type.TYPE_SLICE_END:
                start, name, facts = stacks[event.track_uuid].pop()
                self.slices[event.track_uuid].append((start, packet.timestamp, name, facts))
            else:
                assert event.type == event_type.TYPE_COUNTER
                value = event.double_counter_value or float(event.counter_value)
                self.values[event.track_uuid].append((packet.timestamp, value))
        assert not any(stacks.values())

    def named(self, name: str) -> list[int]:
        return [uuid for uuid, (_, track) in self.tracks.items() if track == name]

    def integral(self, name: str) -> float:
        """Of a counter over time, on average over processes."""
        found = [self.values[uuid] for uuid in self.named(name)]
        return sum(
            value * (after - at) * 1e-9 for values in found for (at, value), (after, _) in itertools.pairwise(values)
        ) / len(self.processes)  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_a_timeline_adds_up_to_the_prediction(tmp_path: Path, plan: str) -> None:
    pytest.importorskip("perfetto")
    summary = written(tmp_path / "step.pftrace", plan).summary
    opened = Opened(tmp_path / "step.pftrace")
    found = predict("llama3-tiny", on="dgx-h100", plan=plan, settings=SETTINGS)
    adds_up(opened, found)
    assert summary["kinds"] == len(opened.processes)
    last = max(end for slices in opened.slices.values() for _, end, _, _ in slices)
    assert last == pytest.approx((found.step_time_s or 0.0) * 1e9, abs=2)


def test_a_pipeline_of_a_file_adds_up(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    options = Options(on="dgx-h100")
    pipeline = write_as_files(ZERO_BUBBLE, tmp_path)
    write_trace("perfetto", TraceRequest(target=pipeline, options=options, out=tmp_path / "step.pftrace", unroll=False))
    opened = Opened(tmp_path / "step.pftrace")
    # Stages start one after the other, and their steps are counted from their own starts: here they idle until then.
    adds_up(opened, predict(pipeline, options), rel=4e-3)
    names = {name.split()[0] for uuid in opened.named("tasks") for _, _, name, _ in opened.slices[uuid]}
    assert names == {"forward", "backward", "weight", "update"}


def adds_up(opened: Opened, found: Prediction, rel: float = 1e-3) -> None:
    assert found.step_time_s is not None
    stages = 1 if found.pipeline is None else len(found.pipeline.stages)
    assert len(set(opened.processes.values())) == stages
    # Joules and bytes of counters are those of the prediction, and memory peaks where it does.
    assert opened.integral("power") == pytest.approx(found.energy_j, rel=rel)
    assert (
        max(value for uuid in opened.named("power") for _, value in opened.values[uuid])
        <= load_device("h100-sxm").tdp_watts
    )
    assert max(value for uuid in opened.named("memory") for _, value in opened.values[uuid]) == found.memory.peak
    assert found.communication is not None
    for link in found.communication.links:
        if link.bytes_sent:
            assert opened.integral(f"sent over {link.level}") == pytest.approx(link.bytes_sent, rel=1e-3)
    # Busy time of the compute stream is what the breakdown says.
    busy = (
        sum(end - start for uuid in opened.named("compute") for start, end, _, _ in opened.slices[uuid]) * 1e-9 / stages
    )
    parts = found.breakdown
    assert parts is not None
    assert busy == pytest.approx(parts.compute + parts.memory + parts.overhead, rel=1e-3)
    for uuid in opened.named("compute"):
        slices = sorted(opened.slices[uuid])
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(slices))
        assert {"flops", "bytes", "bound", "origin", "estimator", "source"} <= {
            fact for each in slices for fact in each[3]
        }


@pytest.mark.parametrize("plan", PLANS)
def test_arrows_have_two_ends(tmp_path: Path, plan: str) -> None:
    pytest.importorskip("perfetto")
    written(tmp_path / "step.pftrace.gz", plan)
    opened = Opened(tmp_path / "step.pftrace.gz")
    assert opened.begins
    assert set(opened.begins) == set(opened.ends)
    assert all(len(each) == 1 for each in (*opened.begins.values(), *opened.ends.values()))
    kinds = {
        (opened.tracks[opened.begins[flow][0]][1].split()[0], opened.tracks[opened.ends[flow][0]][1].split()[0])
        for flow in opened.begins
    }
    assert kinds <= {("compute", "channel"), ("to", "from")}
    if plan.startswith("pp"):
        messages = [flow for flow in opened.begins if opened.tracks[opened.begins[flow][0]][1].startswith("to")]
        # Forward and backward of 8 sequences between neighbours, in microbatches of their own.
        assert len(messages) > 0
        for flow in messages:
            sender, receiver = (opened.tracks[ends[flow][0]] for ends in (opened.begins, opened.ends))
            assert sender[0] != receiver[0]


def test_ranks_can_be_chosen(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    written(tmp_path / "some.pftrace", "pp=2,dp=2,tp=2", ranks="0,3,5")
    opened = Opened(tmp_path / "some.pftrace")
    assert list(opened.processes.values()) == ["rank 0 (stage 0)", "rank 3 (stage 0)", "rank 5 (stage 1)"]
    # The other ends of their messages are ranks 4, 7 and 1: no arrow leads nowhere.
    assert set(opened.begins) == set(opened.ends)
    written(tmp_path / "all.pftrace", "pp=2,dp=2,tp=2", ranks="all")
    assert len(Opened(tmp_path / "all.pftrace").processes) == 8


def test_large_files_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("perfetto")
    monkeypatch.setattr(timelines, "LARGEST_FILE", 1000)
    lines = " ".join(written(tmp_path / "step.pftrace", "fsdp=4", ranks="all").lines)
    assert "fewer ranks (--ranks), or folded loops (--no-unroll), or a compressed file" in lines


def test_what_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("perfetto")
    monkeypatch.setattr("meshcast.traces.perfetto.use_levels", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        written(tmp_path / "step.pftrace", "fsdp=2")
    assert list(tmp_path.iterdir()) == []


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "perfetto.trace_builder.proto_builder", None)
    with pytest.raises(UnsupportedError, match="cannot be imported"):
        written(tmp_path / "step.pftrace", "fsdp=2")


def test_levels_by_hand() -> None:
    found = summed("power", "W", [(0.0, 2.0, 10.0), (1.0, 3.0, 5.0), (5.0, 6.0, 1.0), (7.0, 7.0, 9.0)], base=100.0)
    assert found.steps == ((0.0, 110.0), (1.0, 115.0), (2.0, 105.0), (3.0, 100.0), (5.0, 101.0), (6.0, 100.0))
    assert summed("power", "W", [], base=7.0).steps == ((0.0, 7.0),)


def level(*steps: tuple[float, float]) -> Level:
    return Level(name="power", unit="W", steps=steps)


def test_power_above_the_cap_by_hand() -> None:
    # 2 s at 300 W, 100 above the cap: 200 J more than it allows, which the next 4 s of 150 W have room for.
    assert limited(level((0.0, 300.0), (2.0, 150.0)), 200.0, 8.0).steps == ((0.0, 200.0), (6.0, 150.0))
    # Only 2 s are left: 100 J of it come earlier, in the last 2 of 4 s of 150 W before.
    late = level((0.0, 100.0), (1.0, 150.0), (5.0, 300.0), (7.0, 150.0))
    assert limited(late, 200.0, 9.0).steps == ((0.0, 100.0), (1.0, 150.0), (3.0, 200.0))
    # More than the cap on average: that is what is shown.
    assert limited(level((0.0, 300.0), (1.0, 200.0)), 100.0, 2.0).steps == ((0.0, 250.0),)
    assert limited(level((0.0, 90.0), (1.0, 20.0)), 100.0, 2.0).steps == ((0.0, 90.0), (1.0, 20.0))


@given(
    spans=st.lists(st.tuples(st.floats(1e-6, 10.0), st.floats(0.0, 1000.0)), min_size=1, max_size=20),
    most=st.floats(1.0, 1000.0),
)
def test_power_keeps_its_energy(spans: list[tuple[float, float]], most: float) -> None:
    ends = list(itertools.accumulate(length for length, _ in spans))
    before = level(*zip([0.0, *ends], [watts for _, watts in spans], strict=False))
    after = limited(before, most, ends[-1])
    energies = [
        sum(watts * (end - at) for (at, watts), end in zip(each.steps, [*(a for a, _ in each.steps[1:]), ends[-1]], strict=True))
        for each in (before, after)
    ]  # fmt: skip
    assert energies[0] == pytest.approx(energies[1], rel=1e-9, abs=1e-9)
    average = energies[0] / ends[-1]
    assert max(watts for _, watts in after.steps) <= max(most, average) * (1 + 1e-12)
    assert all(at < later for (at, _), (later, _) in itertools.pairwise(after.steps))


def test_perfettos_own_processor(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    trace = tmp_path / "step.pftrace.gz"
    summary = written(trace, "pp=2,dp=2,tp=2").summary
    found = predict("llama3-tiny", on="dgx-h100", plan="pp=2,dp=2,tp=2", settings=SETTINGS)
    step, open_slices, arrows, backwards, wrong, processes, power, kernels = queried(
        trace,
        "select count(*) as n, max(ts + dur) as last from slice",
        "select count(*) as n from slice where dur < 0",
        "select count(*) as n from flow",
        "select count(*) as n from flow join slice a on slice_out = a.id join slice b on slice_in = b.id where b.ts < a.ts",
        "select name, value from stats where severity != 'info' and value > 0",
        "select name from process where name like 'rank%' order by pid",
        "select upid, ts, value from counter join process_counter_track t on track_id = t.id "
        "where t.name = 'power' order by upid, ts",
        "select count(*) as n, sum(dur) as busy from slice s join thread_track t on track_id = t.id join thread using (utid) "
        "where thread.name = 'compute' and extract_arg(arg_set_id, 'debug.origin') is not null and depth = 0",
    )  # fmt: skip
    assert step[0]["n"] == summary["slices"]
    assert step[0]["last"] == pytest.approx((found.step_time_s or 0.0) * 1e9, abs=2)
    assert (open_slices, arrows, backwards) == ([{"n": 0}], [{"n": summary["arrows"]}], [{"n": 0}])
    assert wrong == []  # nothing of the file was lost, or read otherwise than meant
    assert [row["name"][:16] for row in processes] == ["rank 0 (stage 0)", "rank 4 (stage 1)"]
    joules = sum(
        a["value"] * (b["ts"] - a["ts"]) * 1e-9 for a, b in itertools.pairwise(power) if a["upid"] == b["upid"]
    )
    assert joules / 2 == pytest.approx(found.energy_j, rel=1e-3)
    parts = found.breakdown
    assert parts is not None
    assert kernels[0]["busy"] * 1e-9 / 2 == pytest.approx(parts.compute + parts.memory + parts.overhead, rel=1e-3)
