"""Chakra traces side by side on several devices: replayed, worked out, kept by what is in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshcast
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.evidence.comparison.keys import traces_content
from meshcast.evidence.comparison.reality import compare_measured
from meshcast.jobs.traced import find_traces
from tests.evidence.profiler.traces import kernel_event, kineto
from tests.jobs.traced.jobs import collective, compute, job

BOTH = ("roofline", "auto")
NODES = (compute(0, 10), collective(1, 5, 0))


@pytest.mark.parametrize("name", ["job", "job.0.et", ""])
def test_traces_are_compared_wherever_they_are_predicted(tmp_path: Path, name: str) -> None:
    target = job(tmp_path, [NODES, NODES]).parent / name
    found = meshcast.compare(target, on=["dgx-h100", "dgx-a100"], fidelities=BOTH)
    assert found.exit_code == 0
    for cell in found.cells:
        # A fidelity that is named works durations out, or its column would be of two kinds of numbers.
        durations = "auto" if cell.ask.fidelity == "auto" else "estimated"
        alone = meshcast.predict(target, on=cell.ask.on, fidelity=cell.ask.fidelity, durations=durations)  # type: ignore[arg-type]
        assert cell.step_time_s == alone.step_time_s
        assert cell.own


def test_all_fidelities_of_a_trace_have_what_was_recorded_beside_them(tmp_path: Path) -> None:
    found = meshcast.compare(job(tmp_path, [NODES, NODES]), on="dgx-h100")
    assert found.fidelities[-1] == "auto"
    recorded = found.cell(found.targets[0], "dgx-h100", "auto")
    assert recorded is not None
    assert recorded.answered_by == "trace"
    assert recorded.step_time_s == pytest.approx(15e-6)


def test_durations_are_heeded(tmp_path: Path) -> None:
    found = meshcast.compare(job(tmp_path, [NODES, NODES]), on="dgx-a100", fidelities="roofline", durations="trace")
    assert found.cells[0].step_time_s == pytest.approx(15e-6)
    assert not found.cells[0].own  # what was recorded is no roofline


def test_a_trace_that_says_no_work_has_no_fidelity_but_its_own(tmp_path: Path) -> None:
    silent = (compute(0, 10, num_ops=0, tensor_size=0),)
    found = meshcast.compare(job(tmp_path, [silent]), on="h200", fidelities=BOTH)
    assert [cell.status for cell in found.cells] == ["unsupported", "answered"]
    assert "--durations trace" in found.cells[0].error["fix"]  # type: ignore[index]


def test_answers_are_kept_by_what_is_in_the_files(tmp_path: Path) -> None:
    target, folder = job(tmp_path, [NODES, NODES]), tmp_path / "run"
    ask = {"on": "dgx-h100", "fidelities": "auto", "folder": folder}
    first = meshcast.compare(target, **ask)  # type: ignore[arg-type]
    assert not first.cells[0].reused
    again = meshcast.compare(target, **ask)  # type: ignore[arg-type]
    assert again.cells[0].reused
    job(tmp_path, [(compute(0, 20), collective(1, 5, 0))] * 2)
    changed = meshcast.compare(target, **ask)  # type: ignore[arg-type]
    assert not changed.cells[0].reused
    assert changed.cells[0].step_time_s == pytest.approx(25e-6)


def test_groups_are_part_of_the_content(tmp_path: Path) -> None:
    nodes = (collective(0, 5, pg_name="1"),)
    before = traces_content(find_traces(job(tmp_path, [nodes, nodes], {"1": [0, 1]})))
    assert before != traces_content(find_traces(job(tmp_path, [nodes, nodes], {"1": [1, 0]})))


def test_a_trace_beside_a_profile_is_refused(tmp_path: Path) -> None:
    profile = tmp_path / "run.json"
    profile.write_bytes(kineto([kernel_event("gemm", 0, 10)]))
    with pytest.raises(UnsupportedError, match="not compared with a profile"):
        compare_measured(job(tmp_path, [NODES]), [profile], on="h200")


def test_what_a_trace_cannot_heed_is_named_and_what_nothing_can_stops_before_all(tmp_path: Path) -> None:
    found = meshcast.compare(job(tmp_path, [NODES]), on="h200", fidelities="auto", plan="dp=2")
    assert found.exit_code == 2
    assert found.cells[0].reason.startswith("--plan: a trace has its ranks")
    with pytest.raises(UsageError, match="no durations 'other'"):
        meshcast.compare(job(tmp_path, [NODES]), on="h200", durations="other")  # type: ignore[arg-type]
