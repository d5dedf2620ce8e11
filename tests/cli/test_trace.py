"""`meshcast trace`, and traces as targets of `predict` and `show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Meshcast

TRACE = ("trace", "llama3-tiny", "--on", "dgx-h100", "--plan", "fsdp=2", "--set", "batch=8", "--set", "seq=64")


def test_out_and_in(meshcast: Meshcast) -> None:
    written = meshcast(*TRACE, "--format", "chakra", "-o", "out/job", "--json")
    assert written.code == 0
    assert "writing 2 files" in written.err
    (said,) = written.lines
    assert said["schema"] == "meshcast.trace/1"
    assert said["ranks"] == said["files"] == 2
    assert said["bytes"] == sum(path.stat().st_size for path in Path("out").glob("*.et"))
    (found,) = meshcast("predict", "out/job.0.et", "--on", "dgx-h100", "--json").lines
    assert found["step_time_s"] == pytest.approx(said["step_time_s"], rel=1e-9)
    assert found["target"]["devices"] == 2
    other = meshcast("predict", "out", "--on", "dgx-a100", "--durations", "estimated", "--json").lines[0]
    assert other["step_time_s"] != found["step_time_s"]
    (dumped,) = meshcast("show", "out/job.1.et", "--json").lines
    assert len(dumped["nodes"]) == said["nodes"]
    assert {node["type"] for node in dumped["nodes"]} == {"COMP_NODE", "COMM_COLL_NODE"}
    shown = meshcast("show", "out/job", "--limit", "3")
    assert "Nodes by kind" in shown.out
    assert "reduce-scatter" in shown.out


def test_mistakes_have_codes(meshcast: Meshcast, tmp_path: Path) -> None:
    assert meshcast(*TRACE, "--format", "other", "-o", "job").code == 2
    assert "one of chakra" in meshcast(*TRACE, "--format", "other", "-o", "job").err
    assert meshcast(*TRACE, "--format", "chakra", "-o", "job", "--ranks", "9").code == 2
    assert meshcast(*TRACE, "--format", "chakra", "-o", "job", "--schema", "v1").code == 2
    slow = meshcast(*TRACE, "--format", "kineto", "-o", "job.json", "--slow", "0=0.5")
    assert slow.code == 4
    assert "not alike have no trace yet" in slow.err
    (tmp_path / "cut.et").write_bytes(b"\x05\x0a")
    cut = meshcast("predict", "cut.et", "--on", "dgx-h100", "--json")
    assert cut.code == 2
    assert "byte 0" in json.loads(cut.out)["error"]["message"]
    assert meshcast("show", "none.0.et").code == 2
    assert meshcast("show", "cut.et", "--kernels").code == 2
