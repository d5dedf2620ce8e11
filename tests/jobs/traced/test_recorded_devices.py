"""Traces that were recorded on a device of the catalogue: replayed there, scaled to others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshcast import predict
from meshcast.base.errors import InputError
from meshcast.chakra import RECORDED_ON, Node, NodeType, read_metadata, trace_bytes
from meshcast.chakra.wire import varint
from tests.jobs.traced.jobs import compute

WIDE = 1 << 30  # bytes: a kernel that memory bounds


def _recorded(folder: Path, *nodes: Node, on: str = "NVIDIA A100-SXM4-80GB") -> Path:
    path = folder / "job.0.et"
    path.write_bytes(trace_bytes(list(nodes), metadata={"source": "linked", RECORDED_ON: on}))
    return path


def _host(number: int, micros: float, *deps: int) -> Node:
    said = {"is_cpu_op": True, "tid": 0, "duration_ns": micros * 1e3}
    return Node(number=number, name=f"h{number}", kind=NodeType.COMPUTE, data_deps=deps, attributes=said)


def test_without_a_device_it_is_the_one_that_it_was_recorded_on(tmp_path: Path) -> None:
    path = _recorded(tmp_path, compute(1, 2000.0, tensor_size=WIDE, matrix_ops=0))
    found = predict(path)
    assert found.device == "a100-sxm-80gb"
    assert found.step_time_s == pytest.approx(2e-3)
    assert found.timed is not None
    assert found.timed.interval_s == pytest.approx((2e-3, 2e-3)), "a recording is as long as it was"


def test_on_another_device_what_memory_bounds_follows_its_bandwidth(tmp_path: Path) -> None:
    path = _recorded(tmp_path, compute(1, 2000.0, tensor_size=WIDE, matrix_ops=0), _host(2, 300.0, 1))
    there, here = (predict(path, on=on).step_time_s or 0.0 for on in ("a100-sxm-80gb", "h100-sxm"))
    assert there == pytest.approx(2.3e-3)
    # 2.039 and 3.35 TB/s; the host takes as long as it took.
    assert here - 0.3e-3 == pytest.approx(2e-3 * 2.039 / 3.35, rel=0.1)


def test_estimated_at_home_is_what_was_recorded(tmp_path: Path) -> None:
    path = _recorded(tmp_path, compute(1, 123.0, tensor_size=4096, matrix_ops=0), compute(2, 45.0, 1, num_ops=10**9))
    found = predict(path, on="a100-sxm-80gb", durations="estimated")
    assert found.step_time_s == pytest.approx(168e-6, rel=1e-6)
    assert any("recorded on a100-sxm-80gb" in said for said in found.warnings)


def test_of_an_unknown_device_nothing_is_scaled(tmp_path: Path) -> None:
    path = _recorded(tmp_path, compute(1, 500.0), on="NVIDIA GeForce RTX 2080 Ti")
    assert predict(path, on="h100-sxm").step_time_s == pytest.approx(500e-6)


def test_a_device_of_no_catalogue_is_no_reason_to_refuse_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "job.0.et"
    node = compute(1, 500.0, tensor_size=WIDE, matrix_ops=0)
    path.write_bytes(trace_bytes([node], metadata={"device": "our-own-chip", RECORDED_ON: "A GPU"}))
    assert predict(path, on="h100-sxm").step_time_s


def test_the_host_and_waits_are_no_kernels(tmp_path: Path) -> None:
    path = _recorded(tmp_path, _host(1, 10.0), compute(2, 50.0, 1, op_type="wait"), compute(3, 20.0, 2))
    assert predict(path).kernels == 1


def test_metadata_is_read_without_nodes(tmp_path: Path) -> None:
    path = _recorded(tmp_path, compute(1, 5.0))
    assert read_metadata(path)[RECORDED_ON] == "NVIDIA A100-SXM4-80GB"
    path.write_bytes(b"")
    assert read_metadata(path) == {}
    assert read_metadata(tmp_path / "none.et") == {}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("padding", [0, 200_000])
def test_of_json_the_first_object_alone_is_read(tmp_path: Path, indent: int | None, padding: int) -> None:
    """However long it is and whatever comes behind it; a file of nodes alone says nothing about all of them."""
    path = tmp_path / "job.0.json"
    said = [{"name": RECORDED_ON, "stringVal": "A GPU"}, {"name": "more", "stringVal": "x" * padding}]
    path.write_text(json.dumps({"version": "0.0.4", "attr": said}, indent=indent) + "\n{ this is no node")
    assert read_metadata(path)[RECORDED_ON] == "A GPU"
    for text in ('{"id": "1", "name"', '{"workload_graph": [', "[1]", "", '{"attr": 3}', '{"version": "0'):
        path.write_text(text)
        assert read_metadata(path) == {}


@pytest.mark.parametrize("length", [2**42, 2**63 - 1, 2**64 - 1])
def test_lengths_beyond_the_file_are_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "job.0.et"
    path.write_bytes(varint(length) + b"\n\x05")
    assert read_metadata(path) == {}
    with pytest.raises(InputError, match="in the metadata"):
        predict(path)
