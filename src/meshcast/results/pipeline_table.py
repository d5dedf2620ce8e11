"""A pipeline for people: its bubble, a row for each stage, and what the step waits for."""

from __future__ import annotations

from collections.abc import Callable

from meshcast.base import format_bytes, format_time
from meshcast.results.pipelined import PipelineShare, StageShare
from meshcast.results.printer import percent
from meshcast.results.sections import Section, columns

STAGE_ROWS, PATH_ROWS = 16, 6
_KEPT = {
    "weights": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer_state",
    "activations": "activations",
    "working": "working",
}


def pipeline_sections(pipeline: PipelineShare) -> list[Section]:
    """A row a stage; of many the first and the last."""
    virtual = f" of {pipeline.virtual_stages} parts each" if pipeline.virtual_stages > 1 else ""
    title = (
        f"Pipeline: {pipeline.schedule}, {len(pipeline.stages)} stages{virtual}, {pipeline.microbatches} microbatches"
    )
    if pipeline.bubble is None:
        heads = columns("stage", "~parts", ">devices", ">in flight", ">memory", *(f">{name}" for name in _KEPT))
        return [Section(title=title, columns=heads, rows=_rows(pipeline, _untimed))]
    heads = columns(
        "stage", "~parts", ">devices", ">busy", ">waiting for data", ">idle", ">of step", ">in flight", ">memory",
        ">activations",
    )  # fmt: skip
    notes = [f"bubble {percent(pipeline.bubble)} of all stages' time"]
    if pipeline.send_bytes and pipeline.send_s is not None:
        notes.append(f"largest message {format_bytes(pipeline.send_bytes)} in {format_time(pipeline.send_s)}")
    if not pipeline.barrier:
        notes.append("steps follow each other without a barrier")
    notes.append(_path(pipeline))
    return [Section(title=title, columns=heads, rows=_rows(pipeline, _timed), note="; ".join(notes))]


def _rows(pipeline: PipelineShare, row: Callable[[StageShare], tuple[str, ...]]) -> list[tuple[str, ...]]:
    shown = pipeline.stages
    if len(shown) > STAGE_ROWS:
        shown = (*shown[: STAGE_ROWS // 2], *shown[-(STAGE_ROWS - STAGE_ROWS // 2) :])
    return [row(stage) for stage in shown]


def _named(stage: StageShare) -> tuple[str, str, str]:
    return str(stage.stage), stage.parts, f"{stage.first_device}-{stage.first_device + stage.devices - 1}"


def _untimed(stage: StageShare) -> tuple[str, ...]:
    kept = (stage.memory_bytes[name] for name in ("peak", *_KEPT.values()))
    return (*_named(stage), str(stage.in_flight), *(format_bytes(size) for size in kept))


def _timed(stage: StageShare) -> tuple[str, ...]:
    return (
        *_named(stage),
        format_time(stage.busy_s or 0.0),
        format_time(stage.exposed_communication_s or 0.0),
        format_time(stage.idle_s or 0.0),
        percent(stage.idle_share or 0.0),
        str(stage.in_flight),
        format_bytes(stage.memory_bytes["peak"]),
        format_bytes(stage.memory_bytes["activations"]),
    )


def _path(pipeline: PipelineShare) -> str:
    """The stages and waits that most of the critical path is spent in."""
    seconds: dict[str, float] = {}
    for segment in pipeline.critical_path:
        tasks = segment.what[:1].isdigit()
        name = f"stage {segment.stage}" if tasks else f"{segment.what} (stage {segment.stage})"
        seconds[name] = seconds.get(name, 0.0) + segment.seconds
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} {format_time(value)}" for name, value in longest[:PATH_ROWS])
    more = f" and {len(longest) - PATH_ROWS} more" if len(longest) > PATH_ROWS else ""
    return f"critical path: {named}{more}"
