"""What moves to the host and back beside a loop's turns: in traces, in timelines, and timed again over another link."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import predict
from meshcast.base.errors import UnsupportedError
from meshcast.chakra import read_trace
from meshcast.chakra.own_attributes import HOST_BYTES
from meshcast.hardware import Cluster, resolve
from meshcast.options.options import Options
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest
from tests.traces.astra_reader import makespan_ns

LAYERS, SLOT = 4, 16 // 4 * 64 * 64 * 2  # bf16 inputs of a layer: a quarter of 16 sequences of 64 tokens, 64 wide
RATE = 1e7  # 80 % of which copies reach: 4.1 ms for a slot


def behind(rate: float | None) -> Cluster:
    cluster = resolve("dgx-h100")
    return replace(cluster, device=replace(cluster.device, host_bandwidth=rate))


def offloading(rate: float = RATE) -> Options:
    plan = "fsdp=4,mbs=4,remat=full,offload=activations"
    return Options(on=behind(rate), plan=plan, settings={"batch": "16", "seq": "64", "layers": str(LAYERS)})


@pytest.mark.parametrize("unroll", [False, True])
def test_every_turn_has_its_copy_and_the_step_comes_back(tmp_path: Path, unroll: bool) -> None:
    options = offloading()
    write_trace("chakra", TraceRequest(target="llama3-tiny", options=options, out=tmp_path / "t", unroll=unroll))
    copies = [node for node in read_trace(tmp_path / "t.0.et").nodes if HOST_BYTES in node.attributes]
    assert len(copies) == (2 * LAYERS if unroll else 2)
    assert sum(int(str(node.attributes[HOST_BYTES])) for node in copies) == 2 * LAYERS * SLOT
    assert {node.name.partition(" ")[2] for node in copies} == {"to host", "from host"}
    native, replayed = predict("llama3-tiny", options), predict(tmp_path / "t", on=behind(RATE))
    assert replayed.step_time_s == pytest.approx(native.step_time_s, rel=1e-9)
    assert replayed.breakdown is not None
    assert native.breakdown is not None
    assert replayed.breakdown.idle == pytest.approx(native.breakdown.idle, rel=1e-6)
    for rate in (RATE / 10, 1e12):
        again = predict(tmp_path / "t", on=behind(rate), durations="estimated")
        assert again.step_time_s == pytest.approx(predict("llama3-tiny", offloading(rate)).step_time_s, rel=0.01)
    with pytest.raises(UnsupportedError, match="no rate of it is known"):
        predict(tmp_path / "t", on=behind(None), durations="estimated")


def test_coarse_traces_hide_sizes_of_copies(tmp_path: Path) -> None:
    asked = TraceRequest(
        target="llama3-tiny", options=offloading(), out=tmp_path / "t", anonymise=True, coarsen="50%", unroll=True
    )
    write_trace("chakra", asked)
    sizes = {node.attributes.get(HOST_BYTES) for node in read_trace(tmp_path / "t.0.et").nodes} - {None}
    assert len(sizes) == 1
    assert SLOT not in sizes


@pytest.mark.parametrize("unroll", [False, True])
def test_timelines_draw_the_copies(tmp_path: Path, unroll: bool) -> None:
    path = tmp_path / "step.json"
    write_trace("kineto", TraceRequest(target="llama3-tiny", options=offloading(), out=path, unroll=unroll))
    copies = [each for each in json.loads(path.read_text())["traceEvents"] if each.get("cat") == "gpu_memcpy"]
    names = [each["name"] for each in copies]
    turns = LAYERS if unroll else 1
    assert names.count("Memcpy DtoH (Device -> Pinned)") == names.count("Memcpy HtoD (Pinned -> Device)") == turns
    assert len(copies) == 2 * turns
    for each in copies:
        assert each["dur"] == pytest.approx(LAYERS / turns * SLOT / (0.8 * RATE) * 1e6, rel=1e-3)
        assert each["args"]["memory bandwidth (GB/s)"] == pytest.approx(0.8 * RATE / 1e9)


def test_astra_sims_rules_give_the_same_step(tmp_path: Path) -> None:
    """A rank alone: the host's copies beside the device's kernels, each one at a time."""
    options = offloading().having(plan="mbs=4,remat=full,offload=activations", host="off")
    request = TraceRequest(target="llama3-tiny", options=options, out=tmp_path / "t", unroll=True)
    written = write_trace("chakra", request).summary
    alone = makespan_ns(str(tmp_path / "t"), 1, {}, _nobody, _nobody, exact=True)
    assert alone == pytest.approx(written["step_time_s"] * 1e9, rel=1e-6)


def _nobody(*_: object) -> float:
    raise AssertionError("one rank sends nothing")
