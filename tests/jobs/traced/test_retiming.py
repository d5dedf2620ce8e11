"""Traces timed again on another device: what the program is predicted to take there."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast import predict
from meshcast.base.errors import InputError
from meshcast.chakra import read_trace, trace_bytes
from meshcast.chakra.own_attributes import KERNEL, KERNELS, packed_kernels
from meshcast.estimate.chain import estimate_each
from meshcast.hardware.conditions import Conditions
from meshcast.jobs.traced import timing
from meshcast.jobs.traced.bounds import WITH_SHAPES
from meshcast.jobs.traced.contention import Beside
from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.steps import TraceStep
from meshcast.options.options import Options
from meshcast.results import Prediction
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest
from meshcast.workload import Collective
from tests.jobs.traced.jobs import compute, job

SETTINGS = {"batch": "8", "seq": "64"}


def exported(folder: Path, target: str, plan: str, **asked: Any) -> Path:
    options = Options(on="dgx-h100", plan=plan, settings=SETTINGS)
    write_trace("chakra", TraceRequest(target=target, options=options, out=folder / "t", **asked))
    return folder / "t"


def step(found: Prediction) -> float:
    assert found.step_time_s is not None
    return found.step_time_s


@pytest.mark.parametrize(
    ("target", "plan", "on"),
    [
        ("llama3-tiny", "fsdp=4,tp=2", "dgx-a100"),
        ("llama3-tiny", "fsdp=4,tp=2", "dgx-b200"),
        ("llama3-tiny", "pp=2,dp=2", "dgx-a100"),
        ("mixtral-tiny", "ep=2,dp=2", "dgx-h200"),
        ("gpt2-tiny", "dp=2", "dgx-h100"),
    ],
)
def test_another_gpu(tmp_path: Path, target: str, plan: str, on: str) -> None:
    prefix = exported(tmp_path, target, plan)
    native = predict(target, on=on, plan=plan, settings=SETTINGS)
    again = predict(prefix, on=on, durations="estimated")
    assert step(again) == pytest.approx(step(native), rel=0.01)
    assert any(f"steps came out {WITH_SHAPES.words} a prediction" in warning for warning in again.warnings)


@pytest.mark.parametrize("plan", ["dp=2,offload=optimizer", "pp=2,dp=2,offload=optimizer"])
def test_state_in_the_hosts_memory_takes_the_other_hosts_link(tmp_path: Path, plan: str) -> None:
    """Grace's is seven times as fast as PCIe; most of such a small step is that."""
    prefix = exported(tmp_path, "llama3-tiny", plan)
    native = predict("llama3-tiny", on="gb200-nvl72", plan=plan, settings=SETTINGS)
    assert step(predict(prefix, on="gb200-nvl72")) == pytest.approx(step(native), rel=0.02)


def test_another_kind_of_device_is_said(tmp_path: Path) -> None:
    again = predict(exported(tmp_path, "llama3-tiny", "dp=2,mbs=4"), on="tpu-v5p-pod")
    assert any("fused for a gpu, and a tpu's compiler makes others" in warning for warning in again.warnings)


def test_coarse_traces_have_no_shapes(tmp_path: Path) -> None:
    """Nor the exact step: the manifest is on the grid as well."""
    prefix = exported(tmp_path, "llama3-tiny", "dp=2,mbs=4", anonymise=True, coarsen="5%")
    trace = read_trace(tmp_path / "t.0.et")
    assert KERNELS not in trace.metadata
    assert not any(KERNEL in node.attributes for node in trace.nodes)
    assert any("not from shapes" in w for w in predict(prefix, on="dgx-a100").warnings)
    said = json.loads((tmp_path / "t.manifest.json").read_text())["step_time_s"]
    exact = step(predict("llama3-tiny", on="dgx-h100", plan="dp=2,mbs=4", settings=SETTINGS))
    assert said != exact
    assert said == pytest.approx(exact, rel=0.025)


def test_a_node_that_was_changed_is_what_it_says(tmp_path: Path) -> None:
    """Ten times the operations of one product: its kernel is no longer the one that is listed."""
    exported(tmp_path, "llama3-tiny", "dp=1,mbs=8")
    path = tmp_path / "t.0.et"
    trace = read_trace(path)
    before = step(predict(path, on="dgx-h100", durations="estimated"))
    largest = max(trace.nodes, key=lambda node: node.attributes.get("matrix_ops", 0))
    said = dict(largest.attributes)
    said |= {name: 10**5 * int(str(said[name])) for name in ("num_ops", "matrix_ops")}
    path.write_bytes(_changed(path, largest.number, said))
    after = predict(path, on="dgx-h100", durations="estimated")
    assert step(after) > before
    assert any("of the computing time is worked out from operations and bytes alone" in w for w in after.warnings)
    path.write_bytes(_changed(path, largest.number, {**largest.attributes, KERNEL: 9999}))
    with pytest.raises(InputError, match=r"node \d+ .* \(at byte \d+\): kernel is 9999, and the metadata lists \d+"):
        predict(path, on="dgx-h100")


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (b"no kernels", "the metadata's 'kernels' cannot be unpacked"),
        (packed_kernels([{}])[:-3], "is cut off"),
        (zlib.compress(b"[1]"), "holds no list of objects"),
        ("text", "is 'text', not bytes"),
        (
            packed_kernels([{"kind": "gemm", "colour": 1}]),
            "kernel 0 of the metadata's 'kernels': a kernel that this version",
        ),
    ],
)
def test_kernels_that_cannot_be_read(tmp_path: Path, listed: bytes | str, said: str) -> None:
    exported(tmp_path, "llama3-tiny", "dp=1,mbs=8")
    path = tmp_path / "t.0.et"
    trace = read_trace(path)
    path.write_bytes(trace_bytes(trace.nodes, metadata={**trace.metadata, KERNELS: listed}))
    with pytest.raises(InputError, match=said):
        predict(path, on="dgx-h100")


def _changed(path: Path, number: int, attributes: dict[str, Any]) -> bytes:
    trace = read_trace(path)
    nodes = [replace(node, attributes=attributes) if node.number == number else node for node in trace.nodes]
    return trace_bytes(nodes, metadata=trace.metadata)


def test_a_slow_device(tmp_path: Path) -> None:
    slow = Conditions(speed={1: 0.5})
    options = Options(on="dgx-h100", plan="fsdp=2,tp=2", settings=SETTINGS, host="off")
    write_trace("chakra", TraceRequest(target="llama3-tiny", options=options, out=tmp_path / "t"))
    native = predict("llama3-tiny", options.having(conditions=slow))
    alike = predict(tmp_path / "t", on="dgx-h100", durations="estimated")
    again = predict(tmp_path / "t", on="dgx-h100", durations="estimated", conditions=slow)
    assert step(again) == pytest.approx(step(native), rel=0.01)
    assert step(again) > 1.2 * step(alike)


def test_kernels_are_estimated_in_the_order_of_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set's order differs from run to run, and sums over it in their last bits."""
    sizes = [10**6 * (1 + i * 7 % 11) for i in range(11)]
    asked: list[float] = []

    def heard(kernels: Any, *rest: Any, **named: Any) -> Any:
        found = list(kernels)
        asked.extend(kernel.matrix_flops for kernel in found)
        return estimate_each(found, *rest, **named)

    monkeypatch.setattr("meshcast.jobs.traced.timing.estimate_each", heard)
    predict(
        job(tmp_path, [[compute(i, 0, num_ops=size) for i, size in enumerate(sizes)]]), on="h200", durations="estimated"
    )
    assert asked == sizes


def test_the_collective_of_a_step_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it runs beside, and however many rounds it takes until times agree."""
    prefix = exported(tmp_path, "llama3-tiny", "fsdp=4")
    made: list[tuple[int, TraceStep]] = []
    slowed: list[int] = []
    find, slow = timing.collective_of, Beside._slowed

    def counting(self: Beside, number: int, *rest: Any) -> list[float]:
        slowed.append(id(self))
        if len(slowed) == 1:
            made.clear()  # those before were asked for their time alone
        return slow(self, number, *rest)

    def noting(ranks: TracedRanks, number: int, step: TraceStep) -> Collective:
        made.append((number, step))
        return find(ranks, number, step)

    monkeypatch.setattr(timing, "collective_of", noting)
    monkeypatch.setattr(Beside, "_slowed", counting)
    predict(prefix, on="dgx-h100", durations="estimated", clocks="burst")
    assert len(slowed) > 1
    assert made
    assert max(Counter(made).values()) == 1
