"""ZigZag as a process: what it is told and how its answer is read; the real one where it is installed."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.base.errors import UnsupportedError
from meshcast.estimate.outside.environment import ZIGZAG
from meshcast.estimate.outside.zigzag import simulate_by_zigzag
from meshcast.estimate.systolic import ArrayBuffer, Layer, SystolicArray

BUFFER = ArrayBuffer(words=65536, bandwidth=4)
ARRAY = SystolicArray(rows=8, columns=4, dataflow="ws", ifmap=BUFFER, filter=BUFFER, ofmap=BUFFER)


def pretended(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that says it has ZigZag, and runs something else instead."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncase $2 in -c) echo 3.9.1; exit 0;; esac\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(ZIGZAG.variable, str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def test_its_cycles_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = """grep -q '"loop_sizes": \\[16, 4, 8\\]' workload.yaml && echo '{"ideal": 16.0, "total": 20.0}' > answer.json"""
    pretended(tmp_path, answer, monkeypatch)
    (result,) = simulate_by_zigzag([Layer.gemm(16, 4, 8, name="a")], ARRAY)
    assert (result.name, result.compute_cycles, result.stall_cycles, result.total_cycles) == ("a", 16, 4, 20)
    assert result.utilisation == pytest.approx(16 / 20)


def test_failures_and_other_dataflows_are_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(tmp_path, "echo 'no mapping found'; exit 1", monkeypatch)
    with pytest.raises(UnsupportedError, match="ZigZag failed on a product of 16 x 8 by 8 x 4: no mapping found"):
        simulate_by_zigzag([Layer.gemm(16, 4, 8)], ARRAY)
    with pytest.raises(UnsupportedError, match="stationary weights"):
        simulate_by_zigzag([Layer.gemm(16, 4, 8)], replace(ARRAY, dataflow="os"))


@pytest.mark.skipif(ZIGZAG.release() is None, reason="ZigZag is not installed (meshcast doctor --install zigzag)")
def test_the_real_one_is_no_faster_than_the_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ZIGZAG.variable, str(ZIGZAG.python))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (result,) = simulate_by_zigzag([Layer.gemm(64, 64, 64)], ARRAY)
    assert result.compute_cycles == 64**3 / ARRAY.cells
    assert result.stall_cycles > 0
