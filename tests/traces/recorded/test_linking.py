"""Recordings by hand are linked, and a replay takes what was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshcast import predict
from meshcast.base.errors import InputError, UsageError
from meshcast.chakra import ChakraTrace, CollectiveCode, Node, NodeType, read_trace
from meshcast.traces import link_traces
from meshcast.traces.recorded.events import read_device_trace
from meshcast.traces.recorded.linking import link_rank
from tests.traces.recorded.recordings import execution_trace, profile, write

MICRO = 1e-6


def linked(folder: Path, generation: int = 2, **options: object) -> Path:
    """A job of two ranks: the second begins 10 us later on a clock that is 1,000 us ahead, and comes last to the collective."""
    for rank in (0, 1):
        write(folder, f"et/rank{rank}.json", execution_trace(generation))
    write(folder, "kineto/rank0.json", profile(0, arrives=42, done=62, record=generation == 2))
    write(folder, "kineto/rank1.json", profile(1, begins=10, clock=1000, arrives=42, done=52, record=generation == 2))
    made = link_traces([folder / "et"], [folder / "kineto"], folder / "out", **options)  # type: ignore[arg-type]
    assert made.summary["measured_span_s"] == pytest.approx(67 * MICRO)
    return folder / "out" / "job"


def node(trace: ChakraTrace, name: str) -> Node:
    return next(each for each in trace.nodes if each.name.startswith(name))


@pytest.mark.parametrize("generation", [1, 2])
def test_a_replay_takes_what_was_measured(tmp_path: Path, generation: int) -> None:
    """The second rank begins at 10 and arrives at 52; its collective takes 10 us by itself, on the first 20 with its wait."""
    prefix = linked(tmp_path, generation)
    found = predict(prefix, on="dgx-h100")
    assert found.step_time_s == pytest.approx(67 * MICRO)
    first, second = (read_trace(tmp_path / f"out/job.{rank}.et") for rank in (0, 1))
    for trace in (first, second):
        reduction = node(trace, "nccl")
        assert reduction.kind is NodeType.COLLECTIVE
        assert reduction.attributes["duration_ns"] == 10_000
        assert (reduction.attributes["comm_type"], reduction.attributes["comm_size"]) == (
            CollectiveCode.ALL_REDUCE,
            256,
        )
        assert all(dep < each.number for each in trace.nodes for dep in each.data_deps)
    assert node(second, "begins later").attributes["duration_ns"] == 10_000


def test_what_waits_for_what(tmp_path: Path) -> None:
    """The product waits 3 us behind its launch; the synchronisation for the collective, of which 5 us are its own."""
    trace = read_trace(Path(f"{linked(tmp_path)}.0.et"))
    number = {each.number: each for each in trace.nodes}
    product, delay = node(trace, "volta"), node(trace, "delay")
    assert [number[dep].name for dep in product.data_deps] == ["delay"]
    assert [number[dep].name for dep in delay.data_deps] == ["cudaLaunchKernel"]
    assert (delay.attributes["duration_ns"], delay.attributes["op_type"]) == (3_000, "wait")
    assert (product.attributes["num_ops"], product.attributes["tensor_size"]) == (2 * 8**3, 3 * 256)
    waiting = node(trace, "cudaDeviceSynchronize")
    assert "ncclDevKernel_AllReduce_Sum_f32_RING_LL" in {number[dep].name for dep in waiting.data_deps}
    assert waiting.attributes["duration_ns"] == 5_000
    rest = node(trace, "aten::mm (rest)")
    assert (node(trace, "aten::mm").attributes["duration_ns"], rest.attributes["duration_ns"]) == (5_000, 11_000)
    assert node(trace, "host pause").attributes["duration_ns"] == 10_000


def test_json_holds_the_same_as_protobuf(tmp_path: Path) -> None:
    prefix = linked(tmp_path, form="json")
    made = read_trace(prefix.with_name("job.0.json"))
    other = read_trace(Path(f"{linked(tmp_path / 'other')}.0.et"))
    assert (made.nodes, made.metadata) == (other.nodes, other.metadata)
    assert predict(prefix, on="dgx-h100").step_time_s == pytest.approx(67 * MICRO)


def test_a_rank_alone_stands_for_its_group(tmp_path: Path) -> None:
    device = write(tmp_path, "kineto.json", profile(0))
    link_traces([], [device], tmp_path / "out")
    found = predict(tmp_path / "out", on="dgx-h100")
    assert (found.devices, found.step_time_s) == (2, pytest.approx(67 * MICRO))


def test_a_kernel_that_says_nothing_is_replayed_as_it_was(tmp_path: Path) -> None:
    recording = profile(0, collective="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    found = link_rank(read_device_trace(write(tmp_path, "kineto.json", recording)))
    assert found.notes == ["1 communication kernels do not say what they exchange: replayed as they were"]
    assert next(each for each in found.drafts if "SendRecv" in each.name).kind is NodeType.COMPUTE


def test_one_step_alone(tmp_path: Path) -> None:
    recording = profile(0)
    recording["traceEvents"].append(
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "ProfilerStep#4",
            "ts": recording["traceEvents"][0]["ts"],
            "dur": 25,
        }
    )
    device = read_device_trace(write(tmp_path, "kineto.json", recording))
    assert {each.name for each in link_rank(device, step=4).drafts if not each.host} == {"delay", "volta_sgemm_32x32"}
    with pytest.raises(InputError, match="no step 3"):
        link_rank(device, step=3)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    et, device = write(tmp_path, "et.json", execution_trace(2)), write(tmp_path, "kineto.json", profile(0))
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="1 execution traces and 2 profiles"):
        link_traces([et], [device, device], out)
    with pytest.raises(InputError, match="rank 0 has 2 traces"):
        link_traces([], [device, device], out)
    other = execution_trace(2)
    for each in other["nodes"]:
        each["name"] = f"other {each['name']}"
    with pytest.raises(InputError, match="none of 5 operators"):
        link_traces([write(tmp_path, "other.json", other)], [device], out)
    with pytest.raises(InputError, match="has no nodes"):
        link_traces([device], [device], out)
    with pytest.raises(InputError, match="none of 0 events"):
        link_traces([], [et], out)
    more = write(tmp_path, "more.json", profile(1, world=3))
    with pytest.raises(InputError, match="is of a job of 3 ranks, and 2 ranks have traces"):
        link_traces([], [device, more], out)
    assert not out.exists()


@pytest.mark.parametrize("number", [-1, 2**70])
def test_numbers_of_ranks_that_there_are_not(tmp_path: Path, number: int) -> None:
    """They are refused before a list of as many ranks is made."""
    first = write(tmp_path, "first.json", profile(0))
    for changed in ({"rank": number, "world_size": 2}, {"rank": 1, "world_size": number}):
        events = profile(1)
        events["distributedInfo"] = changed
        with pytest.raises(InputError, match="ranks" if changed["rank"] == 1 else "is of rank"):
            link_traces([], [first, write(tmp_path, "second.json", events)], tmp_path / "out")
    alone = profile(0)
    said = {"Collective name": "allreduce", "In msg nelems": 64, "dtype": "Float", "Group size": number}
    next(each for each in alone["traceEvents"] if "nccl" in each["name"])["args"].update(said)
    with pytest.raises(InputError, match="process group '' has"):
        link_traces([], [write(tmp_path, "alone.json", alone)], tmp_path / "out")


def test_threads_have_any_numbers(tmp_path: Path) -> None:
    events = profile(0, world=1)
    for each in events["traceEvents"]:
        each["tid"] = 2**70 if each["tid"] == 1 else each["tid"]
    link_traces([], [write(tmp_path, "kineto.json", events)], tmp_path / "out")
    assert predict(tmp_path / "out" / "job", on="dgx-h100").step_time_s == pytest.approx(67 * MICRO)


def _odd_arguments(trace: dict[str, Any], events: dict[str, Any]) -> None:
    events["traceEvents"][2]["args"] = [1]


def _text_for_a_node(trace: dict[str, Any], events: dict[str, Any]) -> None:
    trace["nodes"].insert(0, "a text")


def _attributes_as_text(trace: dict[str, Any], events: dict[str, Any]) -> None:
    trace["nodes"][2]["inputs"] = "a text"


def _no_shapes(trace: dict[str, Any], events: dict[str, Any]) -> None:
    trace["nodes"][2]["outputs"]["types"] = None


def _large_number(trace: dict[str, Any], events: dict[str, Any]) -> None:
    trace["nodes"][2]["ctrl_deps"] = 2**70


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_odd_arguments, "event 2 .* has no readable time or number"),
        (_text_for_a_node, "node 0 .* cannot be read"),
        (_attributes_as_text, "node 2 .* cannot be read"),
        (_no_shapes, "node 2 .* cannot be read"),
        (_large_number, "node 2 .* cannot be read"),
    ],
)
def test_values_of_another_kind_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], said: str
) -> None:
    trace, events = execution_trace(2), profile(0, world=1)
    change(trace, events)
    with pytest.raises(InputError, match=said):
        link_traces([write(tmp_path, "et.json", trace)], [write(tmp_path, "kineto.json", events)], tmp_path / "out")
