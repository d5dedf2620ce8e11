"""A pipeline for people: its bubble, a row for each stage, and what the step waits for."""

from __future__ import annotations

from meshcast.results.pipelined import PipelineShare, StageShare
from meshcast.results.printer import Section, columns, percent
from meshcast.units import format_bytes, format_time

STAGE_ROWS, PATH_ROWS = 16, 6


def pipeline_sections(pipeline: PipelineShare) -> list[Section]:
    """A row a stage; of many the first and the last."""
    virtual = f" of {pipeline.virtual_stages} parts each" if pipeline.virtual_stages > 1 else ""
    title = (
        f"Pipeline: {pipeline.schedule}, {len(pipeline.stages)} stages{virtual}, {pipeline.microbatches} microbatches"
    )
    heads = columns(
        "stage", "~parts", ">devices", ">busy", ">waiting for data", ">idle", ">of step", ">in flight", ">memory",
        ">activations",
    )  # fmt: skip
    notes = [f"bubble {percent(pipeline.bubble)} of all stages' time"]
    if pipeline.send_bytes:
        notes.append(f"largest message {format_bytes(pipeline.send_bytes)} in {format_time(pipeline.send_s)}")
    if not pipeline.barrier:
        notes.append("steps follow each other without a barrier")
    notes.append(_path(pipeline))
    return [Section(title=title, columns=heads, rows=_rows(pipeline), note="; ".join(notes))]


def _rows(pipeline: PipelineShare) -> list[tuple[str, ...]]:
    shown = pipeline.stages
    if len(shown) > STAGE_ROWS:
        shown = (*shown[: STAGE_ROWS // 2], *shown[-(STAGE_ROWS - STAGE_ROWS // 2) :])
    return [_row(stage) for stage in shown]


def _row(stage: StageShare) -> tuple[str, ...]:
    return (
        str(stage.stage),
        stage.parts,
        f"{stage.first_device}-{stage.first_device + stage.devices - 1}",
        format_time(stage.busy_s),
        format_time(stage.exposed_communication_s),
        format_time(stage.idle_s),
        percent(stage.idle_share),
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
