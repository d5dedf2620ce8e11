"""Traces that are shared: nothing of the original's names, paths and shapes is in them, and a replay takes as long."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast.base.errors import UsageError
from meshcast.chakra import Node, NodeType, NodeValues, read_trace, trace_bytes
from meshcast.jobs.traced import find_traces
from meshcast.traces import share_traces, verify_shared
from meshcast.traces.recorded.sharing import KEPT, leaks
from tests.traces.recorded.test_linking import linked


def test_nothing_of_the_original_is_left_and_the_replay_stays(tmp_path: Path) -> None:
    original = find_traces(linked(tmp_path))
    said = share_traces(original, tmp_path / "shared")
    assert said["replay_after_s"] == pytest.approx(said["replay_before_s"])
    assert (said["leaks"], said["ranks"]) == ([], 2)
    assert {"rf_id", "et_id", "op_schema"} <= set(said["attributes_removed"])
    shared = find_traces(tmp_path / "shared")
    assert verify_shared(shared, original) == []
    assert verify_shared(original, original) != []
    trace = read_trace(shared.by_rank[0])
    assert trace.metadata == {}
    assert {key for node in trace.nodes for key in node.attributes} <= {*KEPT, "op_type"}
    assert all(node.inputs is None and not node.start_us for node in trace.nodes)


def test_coarse_durations_change_a_replay_by_the_bound_at_most(tmp_path: Path) -> None:
    said = share_traces(find_traces(linked(tmp_path)), tmp_path / "shared", 0.2)
    assert said["bound"] == pytest.approx(1.2**0.5 - 1)
    assert abs(said["replay_after_s"] / said["replay_before_s"] - 1) <= said["bound"] + 1e-9


def test_names_paths_and_shapes_are_found(tmp_path: Path) -> None:
    node = Node(
        number=1, name="secret_layer", kind=NodeType.COMPUTE, inputs=NodeValues(shapes="[16, 256]"),
        attributes={"file": "/home/someone/train.py", "duration_ns": 5},
    )  # fmt: skip
    path = tmp_path / "a.0.et"
    path.write_bytes(trace_bytes([node]))
    found = leaks([path.read_bytes()], [read_trace(path)])
    assert found == ["/home/someone/train.py", "[16, 256]", "secret_layer"]


def test_traces_without_durations_are_shared_too(tmp_path: Path) -> None:
    """As generators write them: there is nothing to replay, and sizes are coarse."""
    node = Node(
        number=1, name="secret_layer", kind=NodeType.COMPUTE, attributes={"num_ops": 1_000_000, "tensor_size": 1000}
    )  # fmt: skip
    (tmp_path / "a.0.et").write_bytes(trace_bytes([node]))
    said = share_traces(find_traces(tmp_path / "a"), tmp_path / "shared", 0.1)
    assert (said["replay_before_s"], said["replay_after_s"], said["leaks"]) == (None, None, [])
    (made,) = read_trace(tmp_path / "shared" / "shared.0.et").nodes
    size = made.attributes["tensor_size"]
    assert isinstance(size, int)
    assert size != 1000
    assert abs(size / 1000 - 1) <= said["bound"] + 1e-3


def test_originals_are_not_in_the_folder_that_is_handed_on(tmp_path: Path) -> None:
    original = find_traces(linked(tmp_path))
    folder = next(iter(original.by_rank.values())).parent
    before = sorted(folder.iterdir())
    with pytest.raises(UsageError, match="holds the originals"):
        share_traces(original, folder)
    assert sorted(folder.iterdir()) == before


def test_names_of_groups_are_taken_out_and_searched_for(tmp_path: Path) -> None:
    said: dict[str, int | str] = {"comm_type": 0, "comm_size": 1000, "pg_name": "acme_group", "duration_ns": 7000}
    node = Node(number=1, name="sum", kind=NodeType.COLLECTIVE, attributes=said)
    for rank in range(2):
        (tmp_path / f"a.{rank}.et").write_bytes(trace_bytes([node]))
    (tmp_path / "a.comm_groups.json").write_text('{"acme_group": [0, 1]}')
    original = find_traces(tmp_path / "a")
    share_traces(original, tmp_path / "shared")
    assert all(b"acme" not in path.read_bytes() for path in (tmp_path / "shared").iterdir())
    assert (tmp_path / "shared" / "shared.comm_groups.json").read_text() == '{"1": [0, 1]}\n'
    assert verify_shared(original, original) == ["acme_group"]
