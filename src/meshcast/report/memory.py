"""Memory over time, and which buffers are there at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from meshcast.jobs import PipelineJob, ProgramJob, Run, ServingJob
from meshcast.report.levels import Series, series
from meshcast.report.source_lines import nearest_line
from meshcast.report.stage_buffers import stage_buffers
from meshcast.report.subject import Scene, Subject
from meshcast.report.tables import Table, TableCell, column, table
from meshcast.simulate import Peak, peak_buffers
from meshcast.traces import RankTimeline

MOST_BUFFERS = 40
_PART = "memory: "


class SceneMemory(TypedDict):
    """Bytes over time of the rank that holds most."""

    name: str
    rank: str
    end_s: float
    total: Series
    parts: list[Series]


class MemorySection(TypedDict):
    """The section."""

    peak: float | None
    capacity: float
    parts: Table
    scenes: list[SceneMemory]
    buffers: Table | None
    note: str


def memory_section(subject: Subject) -> MemorySection:
    """The section; where nothing runs, what is needed and by what."""
    use, capacity = subject.prediction.memory, subject.prediction.capacity_bytes
    buffers, note = _buffers(subject)
    return {
        "peak": use.peak if use.known else None,
        "capacity": capacity,
        "parts": _parts(subject),
        "scenes": [found for scene in subject.scenes for found in _over_time(scene)],
        "buffers": buffers,
        "note": note,
    }


def _parts(subject: Subject) -> Table:
    use, capacity = subject.prediction.memory, subject.prediction.capacity_bytes
    rows: list[list[TableCell]] = []
    if use.known:
        rows = [["arguments", use.arguments, use.arguments / capacity]]
        rows += [[f"– {role.replace('_', ' ')}", size, size / capacity] for role, size in use.by_role.items() if size]
        rows += [["outputs", use.outputs, use.outputs / capacity]]
        rows += [["temporaries", use.temporaries, use.temporaries / capacity]]
        rows += [["shared by arguments and outputs", -use.aliased, -use.aliased / capacity]]
        rows += [["peak", use.peak, use.peak / capacity], ["capacity of a device", capacity, 1.0]]
    columns = (column("part"), column("bytes", "B", "peak_memory"), column("of capacity", "share", "memory_share"))
    return table("memory-parts", "What a device holds", columns, rows)


def _over_time(scene: Scene) -> Iterator[SceneMemory]:
    timeline = scene.drawn
    fullest: tuple[float, RankTimeline] | None = None
    for kind in timeline.kinds:
        levels = kind.memory()
        most = max((value for _, value in levels[0].steps), default=0.0) if levels else 0.0
        if fullest is None or most > fullest[0]:
            fullest = most, kind
    if fullest is None:
        return
    kind = fullest[1]
    end = timeline.step_s
    # Of few slices every turn of a loop is drawn; the parts are stacked from those that stay to those that come and go.
    total, *parts = kind.memory()
    yield {
        "name": scene.name,
        "rank": kind.label,
        "end_s": end,
        "total": series(total, end, "in all"),
        "parts": [series(each, end, each.name.removeprefix(_PART)) for each in parts if any(v for _, v in each.steps)],
    }


def _buffers(subject: Subject) -> tuple[Table | None, str]:
    """The buffers at the peak of one program, and why there are none where there are none."""
    run = _run(subject)
    parts = next((scene.parts for scene in subject.scenes if scene.parts is not None), None)
    pipeline = subject.prediction.pipeline
    if run is not None:
        found = peak_buffers(run.lowered, run.device)
        rows = _argument_rows(run) + _temporaries(subject, run)
        running = found.kernel.name if found.kernel is not None else ""
        at = f"temporaries at their peak, while {running} runs" if running else ""
    elif parts is not None and pipeline is not None:
        rows, at = stage_buffers(parts, pipeline.stages, lambda each: _temporaries(subject, each))
    elif isinstance(subject.job, PipelineJob):
        return None, "where a stage does not fit its memory is counted by part: the table of stages has it"
    else:
        return None, "a trace does not say which buffers are held"
    rows.sort(key=lambda row: -float(row[0] or 0))
    named: list[list[TableCell]] = [[what, size, *rest] for size, what, *rest in rows]
    columns = (
        column("what"), column("bytes", "B", "peak_memory"), column("type", "", "array_type"), column("role"),
        column("source", "", "source"),
    )  # fmt: skip
    return table("buffers", "Buffers at the peak", columns, named, most=MOST_BUFFERS, note=at), ""


def _run(subject: Subject) -> Run | None:
    match subject.job:
        case ProgramJob():
            return subject.job.run
        case ServingJob():
            return subject.job.passes.decoding.run
        case _:
            return None


def _argument_rows(run: Run) -> list[list[TableCell]]:
    schedule, tensors = run.lowered.schedule, run.lowered.tensors
    return [
        [
            tensors[value].bytes, argument.name or f"argument {place}", str(tensors[value]),
            argument.role.value.replace("_", " "), "",
        ]
        for place, (value, argument) in enumerate(zip(schedule.inputs, run.workload.arguments, strict=False))
        if tensors[value].bytes
    ]  # fmt: skip


def _temporaries(subject: Subject, run: Run) -> list[list[TableCell]]:
    """What a program works with at its peak: rows add up to the temporaries, also where a compiler has put them in one block."""
    found = peak_buffers(run.lowered, run.device)
    rows = _temporary_rows(subject, found)
    if found.between:
        said = (
            "room between buffers in the compiler's block" if found.between > 0 else "held by the compiler in one place"
        )
        rows.append([found.between, said, "", "temporary", ""])
    return rows


def _temporary_rows(subject: Subject, peak: Peak) -> list[list[TableCell]]:
    lines = subject.lines
    rows: list[list[TableCell]] = []
    for each in peak.buffers:
        location = each.writer.location if each.writer is not None else ""
        what = each.writer.name if each.writer is not None else "written in a loop"
        if each.tensor is None:
            what = "workspace of a library's kernel"
        rows.append(
            [each.size, what, str(each.tensor) if each.tensor is not None else "", "temporary",
             nearest_line(lines, location) or location]
        )  # fmt: skip
    return rows
