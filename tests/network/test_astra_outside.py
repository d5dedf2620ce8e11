"""ASTRA-sim as a process: a program that checks what it is given, ones that behave badly, and the real one where it is."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from subprocess import Popen

import pytest

from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.evidence.validate.astra import AstraSetting, read_astra_rows
from meshcast.network.astra import (
    AstraDimension,
    AstraNetwork,
    AstraSystem,
    astra_available,
    finish_ns,
    run_alone,
    run_collective,
)
from meshcast.network.astra.program_files import ASTRA_SIM_PROGRAMS

FIXTURE = Path(__file__).parents[1] / "fixtures" / "astra_sim.csv"
NETWORK = AstraNetwork(dimensions=(AstraDimension(shape="Switch", npus=3, bandwidth=50.0, latency_ns=500.0),))
SYSTEM = AstraSystem(all_reduce=("ring",), splits=2, local_memory_bandwidth=1600.0)
# Reads its files the way ASTRA-sim does, and says how large the collective was.
READS = """
import json, sys
flags = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
network = open(flags["network-configuration"]).read()
assert "topology: [ Switch ]" in network and "npus_count: [ 3 ]" in network, network
system = json.load(open(flags["system-configuration"]))
assert system["preferred-dataset-splits"] == 2 and system["all-reduce-implementation"] == ["ring"], system
memory = json.load(open(flags["remote-memory-configuration"]))
assert memory == {"memory-type": "NO_MEMORY_EXPANSION"}, memory
traces = [open(flags["workload-configuration"] + f".{rank}.et", "rb").read() for rank in range(3)]
assert len(set(traces)) == 1 and b"comm_type" in traces[0] and b"comm_size" in traces[0], traces
for rank in range(3):
    print(f"[time] [workload] [info] sys[{rank}] finished, {100 + rank} cycles, exposed communication 1 cycles.")
"""


def pretend(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a program of ASTRA-sim's name on the PATH that runs this Python."""
    script = folder / ASTRA_SIM_PROGRAMS["Unaware"]
    (folder / "body.py").write_text(body)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder / "body.py"}" "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + "/usr/bin:/bin")


def test_files_go_out_and_cycles_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, READS, monkeypatch)
    found = run_collective(NETWORK, SYSTEM, "all_reduce", 1 << 20)
    assert found.finished_ns == (100, 101, 102)
    assert found.seconds == pytest.approx(102e-9)
    assert astra_available()["Unaware"] == tmp_path / ASTRA_SIM_PROGRAMS["Unaware"]


def test_a_job_of_one_rank_is_run_on_every_npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ASTRA-sim has no network of one NPU."""
    pretend(
        tmp_path,
        """
import sys
flags = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
for rank in range(3):
    size = len(open(flags["workload-configuration"] + f".{rank}.et", "rb").read())
    print(f"sys[{rank}] finished, {size} cycles")
""",
        monkeypatch,
    )
    (tmp_path / "job.0.et").write_bytes(b"12345")
    monkeypatch.chdir(tmp_path)
    assert run_alone(Path("job"), NETWORK, SYSTEM).finished_ns == (5, 5, 5)
    assert sorted(path.name for path in tmp_path.glob("job*")) == ["job.0.et"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('sys[0] finished, 5 cycles')", "2 of 3 NPUs never finished, NPU 1 first"),
        ("", "it said nothing"),
        ("print('cannot open'); raise SystemExit(3)", "exit code 3: cannot open"),
        ("import time; time.sleep(60)", "no answer after 0.5 s"),
    ],
)
def test_programs_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str) -> None:
    pretend(tmp_path, body, monkeypatch)
    with pytest.raises(UnsupportedError, match=words):
        run_collective(NETWORK, SYSTEM, "all_reduce", 1 << 20, timeout_s=0.5 if "sleep" in body else 60)


def test_an_interrupt_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pid"
    pretend(tmp_path, f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)", monkeypatch)

    def interrupted(process: Popen[str], _: None = None, timeout: float | None = None) -> tuple[str, str]:
        while not note.exists() or not note.read_text():
            assert process.poll() is None
        raise KeyboardInterrupt

    monkeypatch.setattr(Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_collective(NETWORK, SYSTEM, "all_reduce", 1 << 20)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert astra_available() == {}
    with pytest.raises(UnsupportedError, match="AstraSim_Analytical_Congestion_Aware is not on the PATH"):
        run_collective(NETWORK, SYSTEM, "all_reduce", 1 << 20, "Aware")


def test_what_astra_sim_would_crash_on_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, "raise SystemExit(139)", monkeypatch)
    with pytest.raises(UsageError, match="names 0 algorithms"):
        run_collective(NETWORK, SYSTEM, "all_gather", 1 << 20)


@pytest.mark.skipif(len(astra_available()) < 2, reason="ASTRA-sim's programs are not on the PATH (meshcast doctor)")
def test_the_real_one_says_what_the_preset_says() -> None:
    for row in read_astra_rows(FIXTURE, AstraSetting())[:24]:
        found = run_collective(row.network, row.system, row.kind, row.size, row.backend)
        assert found.finish_ns == finish_ns(row.network, row.system, row.kind, row.size, row.backend)
