"""Sections say what the prediction says: their parts add up to its numbers, and what is left out is told."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast.hardware import Conditions
from meshcast.jobs import ProgramJob, predict_with_job
from meshcast.lower import CompiledMemory
from meshcast.options import Options
from meshcast.report import Subject, prediction_data, subject_of
from meshcast.report.assets import HERE
from meshcast.report.breakdown import breakdown
from meshcast.report.choosing import evenly
from meshcast.report.communication import communication_section
from meshcast.report.contents import SECTIONS, TITLES
from meshcast.report.critical import critical_stretches
from meshcast.report.glossary import GLOSSARY
from meshcast.report.levels import coarse
from meshcast.report.memory import memory_section
from meshcast.report.pipeline import pipeline_section
from meshcast.report.power import power_section
from meshcast.report.provenance import provenance_section
from meshcast.report.roofline import roofline
from meshcast.report.subject import Scene
from meshcast.report.summary import summary_section
from meshcast.report.timeline import NANOSECONDS, _blocks, _count, timeline_section
from meshcast.simulate import memory_by_kernel, peak_buffers
from meshcast.traces.slices import Description, Slice
from tests.captured_programs import with_tracebacks
from tests.jobs.traced.jobs import collective, compute, job
from tests.report.conftest import HOSTILE, TINY, asked


def rows(table: Any) -> list[dict[str, Any]]:
    names = [column["title"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def test_every_section_has_a_title_and_a_template() -> None:
    for name in SECTIONS:
        assert name in TITLES
        assert (HERE / "templates" / "sections" / f"{name}.html.j2").is_file()


def test_every_word_of_a_table_is_in_the_glossary(sharded: Subject, staged: Subject, single: Subject) -> None:
    for subject in (sharded, staged, single):
        text = json.dumps(prediction_data(subject, traces=False))
        found = set(json.loads(text, object_pairs_hook=dict)["sections"])
        assert {"summary", "breakdown", "timeline", "roofline", "memory", "provenance"} <= found
        for term in _terms(json.loads(text)["sections"]):
            assert term in GLOSSARY


def _terms(value: Any) -> set[str]:
    if isinstance(value, dict):
        mine = {value["term"]} if isinstance(value.get("term"), str) and value["term"] else set()
        return mine.union(*map(_terms, value.values()))
    return set().union(*map(_terms, value)) if isinstance(value, list) else set()


def test_parts_add_up_to_the_step(sharded: Subject) -> None:
    found = breakdown(sharded)
    assert found is not None
    prediction = sharded.prediction
    assert sum(part["seconds"] for part in found["parts"]) == pytest.approx(prediction.step_time_s)
    (scene,) = found["scenes"]
    tables = {table["name"]: table for table in scene["tables"]}
    classes = rows(tables["classes"])
    (work,) = sharded.scenes[0].work
    assert sum(row["launches"] for row in classes) == sum(count for _, count in work.passes[0].run.executed)
    assert sum(row["memory traffic"] for row in classes) == pytest.approx(prediction.hbm_bytes)
    assert sum(row["sent"] or 0 for row in classes) == pytest.approx(prediction.communication_bytes)
    busy = sum(row["time"] for row in classes)
    assert sum(row["time"] for row in rows(tables["loops"])) == pytest.approx(busy)
    # Loops over two layers in that over four microbatches run forward and backward: eight turns of a layer in a step.
    looped = [row for row in rows(tables["loops"]) if row["turns"]]
    assert sorted(row["turns"] for row in looped) == [4, 8, 8]
    assert all(row["a turn"] == pytest.approx(row["time"] / row["turns"]) for row in looped)


def test_kernels_and_collectives_name_lines_of_the_program() -> None:
    with with_tracebacks():  # of a length that nothing else captures
        found = breakdown(asked("llama3-tiny", on="dgx-h100", plan="fsdp=2", settings={"batch": "8", "seq": "40"}))
    assert found is not None
    lines = next(table for table in found["scenes"][0]["tables"] if table["name"] == "lines")
    by_kind: dict[str, list[str]] = {}
    for row in rows(lines):
        by_kind.setdefault(row["kind"], []).append(row["source"])
    for kind in ("compute", "communication"):
        assert any(".py:" in source for source in by_kind[kind])


def test_a_programs_own_locations_are_told(single: Subject) -> None:
    (scene,) = single.scenes
    assert scene.line("third") == "model.py:40"
    assert scene.line("second") == "second"
    assert scene.line(f"first {HOSTILE}").endswith(":12")


def test_the_matrix_has_what_every_device_sends(sharded: Subject, staged: Subject) -> None:
    for subject in (sharded, staged):
        section = communication_section(subject)
        assert section is not None
        (matrix,) = section["matrices"]
        assert matrix["block"] == 1
        sent = {row: sum(cell[2] for cell in matrix["cells"] if cell[0] == row) for row in range(matrix["ranks"])}
        assert all(cell[0] != cell[1] for cell in matrix["cells"])
        if subject is sharded:
            assert sent[0] == sent[1] == pytest.approx(subject.prediction.communication_bytes)
    # Stage 0 is ranks 0 and 1: what they exchange, and messages to the ranks of stage 1.
    pairs = {(int(a), int(b)) for a, b, _ in matrix["cells"]}
    assert {(0, 1), (1, 0), (0, 2), (1, 3), (2, 0), (3, 1)} <= pairs
    assert not {(0, 3), (1, 2)} & pairs


def test_the_critical_path_covers_the_step(sharded: Subject, staged: Subject) -> None:
    for subject in (sharded, staged):
        (scene,) = subject.scenes
        found = critical_stretches(scene, unrolled=True)
        kinds = found.values() if scene.pipeline is not None else [found[0]]
        stretches = sorted((each for kind in kinds for each in kind), key=lambda each: each.start)
        assert stretches[0].start == 0
        assert stretches[-1].end == pytest.approx(subject.prediction.step_time_s)
        for one, next_one in itertools.pairwise(stretches):
            assert next_one.start == pytest.approx(one.end)


def test_what_is_marked_is_on_the_path(sharded: Subject) -> None:
    section = timeline_section(sharded)
    assert section is not None
    (scene,) = section["scenes"]
    lanes = {lane["name"]: lane for lane in scene["kinds"][0]["lanes"]}
    path, compute = lanes["critical path"], lanes["compute"]
    assert sum(path["slices"][1::3]) == pytest.approx(scene["step_ns"], rel=1e-3)
    on_path = [scene["what"][number]["kind"] for number in path["slices"][2::3]]
    assert {"communication"} < set(on_path)
    # Kernels on the path, and the gaps between them, are what of the path is no communication and no wait.
    marked = sum(compute["slices"][3 * place + 1] for place in compute["critical"])
    computing = sum(
        length for length, kind in zip(path["slices"][1::3], on_path, strict=True) if kind in ("compute", "memory")
    )
    assert marked <= computing * 1.001
    assert marked > 0.8 * computing


def test_a_timeline_is_bounded(sharded: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshcast.report.timeline.MOST_SLICES", 60)
    section = timeline_section(sharded)
    assert section is not None
    (scene,) = section["scenes"]
    lanes = [lane for lane in scene["kinds"][0]["lanes"] if lane["group"] != "path"]
    assert sum(len(lane["slices"]) // 3 for lane in lanes) <= 60
    assert any("are drawn in blocks" in said for said in scene["folded"])
    whole = sum(lane["slices"][-3] + lane["slices"][-2] for lane in lanes if lane["name"] == "compute")
    assert whole == pytest.approx(sharded.scenes[0].drawn.step_s * NANOSECONDS, rel=0.01)


def test_neighbours_that_are_too_short_become_one_block() -> None:
    def slice_of(start: float, end: float) -> Slice:
        return Slice(what=Description(name="k", category="kernel"), track="compute", start=start, end=end)

    slices = [slice_of(0, 1), slice_of(1, 3), slice_of(3, 13), slice_of(13, 14), slice_of(30, 31)]
    found = [(first.start, last.end, count) for first, last, count in _blocks(slices, 5)]
    assert found == [(0, 3, 2), (3, 13, 1), (13, 14, 1), (30, 31, 1)]
    assert _count(slices, 5) == 4
    assert _count(slices, 100) == len(list(_blocks(slices, 100))) == 1


def test_what_is_shown_is_chosen_evenly() -> None:
    assert evenly(3, 5) == [0, 1, 2]
    assert evenly(9, 3) == [0, 4, 8]
    assert evenly(9, 1) == [0]
    assert evenly(9, 0) == []


def test_levels_keep_their_peaks() -> None:
    steps = [(place / 10_000, 1.0) for place in range(10_000)]
    steps[4321] = (0.4321, 7.0)
    found = coarse(steps, 1.0, most=100)
    assert len(found) <= 100
    assert max(value for _, value in found) == 7.0


def test_buffers_of_the_fullest_stage_add_up(staged: Subject) -> None:
    """What stays and what is in flight is the stage's own figure; what its pass works with comes on top."""
    section = memory_section(staged)
    assert section["buffers"] is not None
    assert staged.prediction.pipeline is not None
    fullest = max(staged.prediction.pipeline.stages, key=lambda each: each.memory_bytes["peak"])
    held: dict[str, float] = {}
    for row in rows(section["buffers"]):
        held[row["role"]] = held.get(row["role"], 0) + row["bytes"]
    for role, part in (("parameter", "parameters"), ("gradient", "gradients"), ("optimizer state", "optimizer_state")):
        assert held[role] == fullest.memory_bytes[part]
    assert held["activation"] == fullest.memory_bytes["activations"]
    assert held["temporary"] > 0
    assert f"stage {fullest.stage}" in section["buffers"]["note"]


def test_buffers_at_the_peak_add_up(single: Subject) -> None:
    assert isinstance(single.job, ProgramJob)
    run = single.job.run
    peak = peak_buffers(run.lowered, run.device)
    assert peak.between == 0
    assert sum(each.size for each in peak.buffers) == run.memory.temporaries
    section = memory_section(single)
    assert section["buffers"] is not None
    assert sum(row["bytes"] for row in rows(section["buffers"])) == run.memory.arguments + run.memory.temporaries
    assert max(section["scenes"][0]["total"]["values"]) == run.memory.peak == section["peak"]


@pytest.mark.parametrize("more", [1000, 0, -1000])
def test_a_block_that_a_compiler_has_assigned_is_told_buffer_by_buffer(single: Subject, more: int) -> None:
    """One that is larger has room between its buffers; of one that is smaller no more is there at once than it holds."""
    assert isinstance(single.job, ProgramJob)
    run = single.job.run
    live = peak_buffers(run.lowered, run.device)
    block = CompiledMemory(
        arguments=run.memory.arguments, outputs=run.memory.outputs, temporaries=run.memory.temporaries + more, aliased=0
    )
    assigned = replace(run.lowered, memory=block)
    peak = peak_buffers(assigned, run.device)
    assert (peak.buffers, peak.between) == (live.buffers, more)
    by_kernel = memory_by_kernel(assigned, run.device)
    assert max(by_kernel.values()) == run.memory.temporaries + min(more, 0)
    assert len(set(by_kernel.values())) > 1


def test_the_step_of_a_trace_is_told_by_its_parts(tmp_path: Path) -> None:
    """Two kernels and a collective behind them, as recorded: nothing of it overlaps."""
    prefix = job(tmp_path, [[compute(1, 100), collective(2, 50, 1), compute(3, 200, 2)]] * 2, {"0": [0, 1]})
    section = breakdown(subject_of(*predict_with_job(prefix, Options(on="dgx-h100"))))
    assert section is not None
    assert section["whole"] is not None
    told = {row["part"]: row["time"] for row in rows(section["whole"])}
    assert told["exposed communication"] == pytest.approx(50e-6)
    assert sum(told.values()) == pytest.approx(350e-6)


def test_roofs_are_the_data_sheets_and_points_lie_below(single: Subject) -> None:
    section = roofline(single)
    assert section is not None
    device = single.cluster.device
    roofs = {roof["name"]: roof["value"] for roof in section["roofs"]}
    assert roofs["bf16"] == device.matrix_flops["bf16"]
    assert roofs["memory"] == device.memory_bandwidth
    (scene,) = section["scenes"]
    products = [point for point in scene["points"] if point["type"] == "bf16"]
    assert {point["intensity"] for point in products} == {2 * 512**3 / (3 * 2 * 512**2)}
    assert all(point["achieved"] < device.matrix_flops["bf16"] for point in products)


def test_energy_by_class_is_the_predictions(single: Subject) -> None:
    section = power_section(single)
    assert section is not None
    (classes,) = section["classes"]
    assert sum(row["energy"] for row in rows(classes)) == pytest.approx(single.prediction.energy_j, rel=1e-6)
    power = section["scenes"][0]["series"]
    joules = sum(
        value * (after - at) for value, at, after in zip(power["values"], power["at"], power["at"][1:], strict=False)
    )
    assert joules == pytest.approx(single.prediction.energy_j, rel=1e-3)


def test_a_pipeline_is_drawn_task_by_task(staged: Subject) -> None:
    section = pipeline_section(staged)
    assert section is not None
    assert [row["stage"] for row in section["rows"]] == [0, 1]
    for row in section["rows"]:
        # Four microbatches, forward and backward, five numbers each.
        assert len(row["tasks"]) == 5 * 2 * section["microbatches"]
    assert rows(section["stages"])[0]["peak memory"] == staged.prediction.pipeline.stages[0].memory_bytes["peak"]  # type: ignore[union-attr]


def test_what_would_help_is_told_first(single: Subject) -> None:
    section = summary_section(single)
    assert section["headline"]["value"] == single.prediction.step_time_s
    assert section["helps"] is not None
    assert [row["saves"] for row in rows(section["helps"])] == [lever.saved_share for lever in single.prediction.levers]


def test_what_does_not_fit_says_what_is_missing() -> None:
    with with_tracebacks():  # of a length that nothing else captures
        found = asked("llama3-8b", on="h100-sxm", settings={"batch": "8", "seq": "4032"})
        data = prediction_data(found)
    assert list(data["sections"]) == ["summary", "memory", "provenance"]
    section = data["sections"]["summary"]
    assert not section["feasible"]
    assert section["headline"]["value"] == found.prediction.infeasible.gap  # type: ignore[union-attr]
    assert section["helps"] is not None
    sources = [row["source"] for row in rows(data["sections"]["memory"]["buffers"]) if row["role"] == "temporary"]
    assert any(".py:" in source for source in sources)


def test_what_cannot_be_drawn_says_why() -> None:
    found = asked("llama3-tiny", on="dgx-h100", plan="fsdp=2", settings=TINY, conditions=Conditions(speed={1: 0.5}))
    assert not found.scenes
    section = timeline_section(found)
    assert section is not None
    assert "not alike" in section["note"]
    assert "timeline" in prediction_data(found)["sections"]


def test_who_decided_an_input_is_told(single: Subject) -> None:
    section = provenance_section(replace(single, command="meshcast report step.mlir"))
    by = {row["input"]: row["decided by"] for table in section["inputs"][:2] for row in rows(table)}
    assert by["on"] == "asked"
    assert by["clocks"] == "default"
    assert section["command"] == "meshcast report step.mlir"
    assert sum(each["share"] for each in section["origins"]) == pytest.approx(1)


def test_lines_of_an_op_inside_another(single: Subject) -> None:
    scene = Scene(name="", times="", work=(), draw=lambda _: None, lines={"jit(f)/call": "model.py:3"})  # type: ignore[arg-type, return-value]
    assert scene.line("jit(f)/call/inner/ffi_call") == "model.py:3"
    assert scene.line("elsewhere") == "elsewhere"
