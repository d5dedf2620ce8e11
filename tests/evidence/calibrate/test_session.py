from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast.base.errors import InputError, UnsupportedError
from meshcast.estimate.measurements.file import ProfileHeader, ProfileJournal
from meshcast.estimate.measurements.profile import read_profile
from meshcast.evidence.calibrate import measuring, session
from meshcast.evidence.calibrate.backend import Backend, device_name
from meshcast.evidence.calibrate.compiling import pack, unpack
from meshcast.evidence.calibrate.probe import parse
from meshcast.evidence.calibrate.relower import Relowered, lowered_row, relower_file
from meshcast.evidence.calibrate.session import CalibrationProgress, measure, selected
from meshcast.evidence.calibrate.suite import probe_suite
from meshcast.evidence.calibrate.tracing import Event, LaunchTrace
from meshcast.hardware import DRIVER_NAMES, device_names
from tests.evidence.calibrate.test_timed import HLO

CPU = Backend(
    platform="cpu", kind="test", flops_per_s=1e10, bytes_per_s=1e10, memory_bytes=1e9, host_bytes=1e10, dispatch_s=1e-6
)
HEADER = ProfileHeader(device="test", kind="test", backend="cpu", suite=1, jax="0", jaxlib="0")
PROBES = [
    parse(text)
    for text in (
        "gemm:m=8,n=8,k=8,dtype=float32",
        "rows:op=softmax,rows=8,cols=16,dtype=float32",
        "movement:op=update_cache,shape=2x16x2x4,dtype=float32",
        "elementwise:op=adam,rows=4,cols=8,dtype=float32,tensors=2",
        "indexed:op=take_sum,rows=100,dim=8,dtype=float32,count=16,pool=4,skew=1.05",
    )
]
BROKEN = parse("convolution:what=fwd,n=1,h=8,cin=6,cout=8,k=3,stride=1,dtype=float32,groups=4")


def _quiet(_: CalibrationProgress) -> None:
    pass


def test_a_session_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.profile.jsonl.gz"
    seen: list[CalibrationProgress] = []
    journal = ProfileJournal(path, HEADER)
    assert measure(PROBES[:2], CPU, journal, seconds=100, listen=seen.append) == 0
    assert [progress.stage for progress in seen] == ["compiling", "measuring", "done"]
    again = ProfileJournal(path, HEADER)
    assert measure(PROBES, CPU, again, seconds=100, listen=seen.append) == 0
    again.finish()
    rows = {row["id"]: row for row in again.rows}
    assert list(rows) == [item.id for item in PROBES]
    for row in rows.values():
        assert row["method"] == "wall"
        assert 0 < row["busy_us"] <= row["wall_us"]
    assert rows[PROBES[0].id]["mem"] == {"args": 512, "out": 256, "temp": 0, "alias": 0}
    assert rows[PROBES[2].id]["mem"]["alias"] == 2 * 16 * 2 * 4 * 4  # updated in place


def test_a_probe_that_fails_stops_no_other(tmp_path: Path) -> None:
    journal = ProfileJournal(tmp_path / "a.profile.jsonl", HEADER)
    measure([BROKEN, PROBES[0]], CPU, journal, seconds=100, listen=_quiet)
    assert [("error" in row, "busy_us" in row) for row in journal.rows] == [(True, False), (False, True)]
    assert "UsageError" in journal.rows[0]["error"] or "Error" in journal.rows[0]["error"]


def test_no_time_no_batch(tmp_path: Path) -> None:
    journal = ProfileJournal(tmp_path / "a.profile.jsonl", HEADER)
    assert measure(PROBES, CPU, journal, seconds=-1, listen=_quiet) == len(PROBES)
    assert journal.rows == []


def test_a_device_that_died_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "is_alive", lambda: False)
    journal = ProfileJournal(tmp_path / "a.profile.jsonl", HEADER)
    with pytest.raises(UnsupportedError, match="stopped working"):
        measure([PROBES[0], BROKEN, BROKEN], CPU, journal, seconds=100, listen=_quiet)
    assert [row["id"] for row in journal.rows] == [PROBES[0].id, BROKEN.id]


def test_device_times_by_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's way through a session: two kernels a run, of 3 and 1 us, for the first probe; none for the second."""

    @contextmanager
    def traced() -> Iterator[LaunchTrace]:
        trace = LaunchTrace(has_device=True)
        yield trace
        runs = measuring.FEWEST + 2
        trace.events[0] = [
            Event(start=10_000 * run + at, end=10_000 * run + at + us * 1000, op=op, kernel=op)
            for run in range(runs)
            for at, us, op in ((0, 3, "dot"), (4000, 1, "memset"))
        ]

    monkeypatch.setattr(measuring, "traced", traced)
    monkeypatch.setattr(measuring, "_spin", lambda: None)
    monkeypatch.setattr(measuring, "MOST", measuring.FEWEST)
    monkeypatch.setattr(measuring, "LONG_S", 1e9)
    gpu = replace(CPU, platform="gpu")
    journal = ProfileJournal(tmp_path / "a.profile.jsonl", replace(HEADER, backend="gpu"))
    library = parse(PROBES[0].id + ",tune=library")
    kept: list[str] = []
    measure(
        [library, PROBES[1]], gpu, journal, seconds=100, listen=_quiet, keep=lambda item, row: kept.append(row["id"])
    )
    first, second = journal.rows
    assert first["busy_us"] == 4.0
    assert [(k["hlo_op"], k["us"], k["count"]) for k in first["kernels"]] == [("dot", 3.0, 1.0), ("memset", 1.0, 1.0)]
    assert "no kernel" in second["error"]
    assert kept == [library.id]


def test_what_is_too_long_or_too_large_or_anothers_is_left_out() -> None:
    chosen = selected(probe_suite(), CPU, limit=200)
    assert len(chosen) == 200
    assert not any(("impl", "cudnn") in item.settings for item in chosen)
    assert selected(probe_suite(), replace(CPU, flops_per_s=1.0, bytes_per_s=1.0), limit=None) == []
    assert selected(probe_suite(), replace(CPU, memory_bytes=1.0), limit=None) == []


def test_rows_are_lowered_again(tmp_path: Path) -> None:
    path = tmp_path / "a.profile.jsonl.gz"
    journal = ProfileJournal(path, HEADER)
    journal.append(
        [
            {"id": PROBES[0].id, "family": "gemm", "busy_us": 2.0},
            {"id": BROKEN.id, "family": "convolution", "busy_us": 2.0},
            {"id": "rows:op=softmax", "family": "rows", "error": "no memory"},
        ]
    )
    journal.finish()
    with pytest.raises(InputError, match="not been lowered"):
        read_profile(path).measurements[0].kernels()
    assert relower_file(path, lambda done, total: None) == Relowered(rows=3, not_lowered=1, paired=1)
    profile = read_profile(path)
    ((first, kernels),) = profile.lowered()
    assert first.seconds == 2e-6
    ((kernel, count),) = kernels
    assert (kernel.matrix_flops, count) == (2 * 8**3, 1)
    assert [m.id for m in profile.measurements] == [PROBES[0].id, BROKEN.id]  # the third did not run
    with pytest.raises(InputError, match="groups"):
        profile.measurements[1].kernels()


def test_a_row_may_bring_its_program_along() -> None:
    text = """
    module @jit_probe {
      func.func public @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
        %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
        return %0 : tensor<8x8xf32>
      }
    }"""
    assert unpack(pack(text)) == text
    row: dict[str, Any] = {"id": "attention:impl=cudnn", "family": "attention", "busy_us": 1.0, "stablehlo": pack(text)}
    assert lowered_row(row, "gpu")["lowered"][0][0]["kind"] == "gemm"


def test_kept_hlo_is_one_file(tmp_path: Path) -> None:
    from meshcast.evidence.calibrate.compiling import Ready
    from meshcast.evidence.calibrate.kept_hlo import HLO_FILE, KeptHlo, hlo_folder, read_hlo

    class Compiled:
        def as_text(self) -> str:
            return "HloModule m"

    keeper = KeptHlo(tmp_path / "hlo")
    for item in PROBES[:2]:
        ready = Ready(
            probe=item, number=0, body=None, run=Compiled(), fill=None, compile_s=0, memory={}, stablehlo=None  # type: ignore[arg-type]
        )  # fmt: skip
        keeper.add(ready, {"kernels": [{}]})  # a single kernel needs no telling apart
        keeper.add(ready, {"kernels": [{}, {}]})
    lines = gzip.decompress((tmp_path / "hlo" / HLO_FILE).read_bytes()).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [item.id for item in PROBES[:2]]
    assert read_hlo(tmp_path / "hlo", needed=True) == {item.id: "HloModule m" for item in PROBES[:2]}
    assert read_hlo(tmp_path / "none", needed=False) == {}
    with pytest.raises(InputError, match=HLO_FILE):
        read_hlo(tmp_path / "none", needed=True)
    assert hlo_folder(tmp_path / "h200.profile.jsonl.gz") == tmp_path / "h200.hlo"


def test_kept_hlo_tells_kernels_apart(tmp_path: Path) -> None:
    """A probe of several kernels has a time for each instruction that the profiler saw."""
    path, probe = tmp_path / "a.profile.jsonl.gz", PROBES[3].id
    seen = [
        {"hlo_op": "neg-fusion", "kernel": "neg_fusion", "count": 1.0, "us": 2.0},
        {"hlo_op": "exp.fusion", "kernel": "exp_fusion", "count": 1.0, "us": 5.0},
    ]
    journal = ProfileJournal(path, replace(HEADER, backend="gpu"))
    journal.append([{"id": probe, "family": "elementwise", "busy_us": 9.0, "kernels": seen}])
    journal.finish()
    assert relower_file(path, lambda done, total: None).paired == 0
    (tmp_path / "a.hlo").mkdir()
    line = json.dumps({"id": probe, "hlo": HLO}) + "\n"
    (tmp_path / "a.hlo" / "optimized.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    assert relower_file(path, lambda done, total: None).paired == 1
    assert [seconds for _, seconds, _ in read_profile(path).timed_kernels()] == pytest.approx([2e-6, 5e-6])


def test_devices_have_names() -> None:
    assert set(DRIVER_NAMES.values()) <= set(device_names())
    assert device_name("NVIDIA H200") == "h200"
    assert device_name("Intel(R) Xeon(R) CPU @ 2.20GHz, 8 cores") == "intel-xeon-cpu-2-20ghz-8-cores"
