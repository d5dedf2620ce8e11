"""Formats that traces are written in: one table, an entry a format.

To add one: a function that takes a `TraceRequest`, writes its files and gives a `Written`, and a line in `FORMATS` that names
the flags of `meshcast trace` beyond the common ones that it heeds. Flags that a format does not heed are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.errors import UsageError
from meshcast.export.chakra import ChakraFiles, parse_ranges, planned, write
from meshcast.export.flattening import Detail
from meshcast.export.job import JobTrace
from meshcast.export.pipelines import pipeline_trace
from meshcast.export.programs import program_trace
from meshcast.options import Options
from meshcast.pipeline import assembled_pipeline, prepare, resolved
from meshcast.pipelined import is_pipeline
from meshcast.units import format_bytes

Said = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A trace that is asked for.

    Attributes:
        target: Whatever `predict` takes.
        options: Everything else that the prediction depends on.
        out: A file, or the prefix of several.
        ranks: Which ranks, as `0-7,16`; None for all.
        unroll: Whether every turn of a loop is written out.
        dedup: Whether equal ranks have one file.
        schema: Of Chakra: `current` or `v0.0.4`.
        memory: Whether nodes name what they read and write.
    """

    target: Any
    options: Options
    out: Path
    ranks: str | None = None
    unroll: bool = False
    dedup: bool = False
    schema: str = "current"
    memory: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: lines for people, and an object for programs."""

    lines: tuple[str, ...]
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """How one format is written, and which of the request's fields (`ranks`, `unroll`, ...) it heeds."""

    what: str
    write: Callable[[TraceRequest, Said], Written]
    heeds: frozenset[str]


def job_trace(request: TraceRequest) -> JobTrace:
    """What every rank of a target does."""
    detail = Detail(unroll=request.unroll, memory=request.memory)
    target, options = resolved(request.target, request.options)
    if is_pipeline(target):
        return pipeline_trace(*assembled_pipeline(target, options), detail)
    return program_trace(prepare(target, options), detail)


def write_chakra(request: TraceRequest, said: Said) -> Written:
    """Chakra execution traces, a file a rank."""
    wanted = ChakraFiles(
        prefix=request.out, generation=request.schema, dedup=request.dedup,  # type: ignore[arg-type]  # checked below
        ranks=None if request.ranks is None else parse_ranges(request.ranks),
    )  # fmt: skip
    job = job_trace(request)
    what = planned(job, wanted)
    nodes = sum(len(each.body) for each in job.classes)
    said(f"writing {len(what.files):,} files, {format_bytes(what.size)} in all, to {request.out}.RANK.et")
    files = write(job, wanted, what)
    return Written(
        lines=(
            f"{len(what.files):,} files of {job.ranks:,} ranks, {format_bytes(what.size)}: {len(job.classes)} kinds of rank "
            f"with {nodes:,} nodes, {len(job.groups.members):,} groups",
            "ASTRA-sim takes " + " ".join(f"--{flag}={path}" for flag, path in files.items() if flag != "manifest"),
        ),
        summary={
            "format": "chakra", "ranks": job.ranks, "files": len(what.files), "bytes": what.size, "nodes": nodes,
            "classes": len(job.classes), "groups": len(job.groups.members), "step_time_s": job.step_s,
            "prefix": str(request.out), "comm_groups": str(wanted.groups), "manifest": str(wanted.manifest),
        },
    )  # fmt: skip


FORMATS: Mapping[str, TraceFormat] = {
    "chakra": TraceFormat(
        what="Chakra execution traces, PREFIX.RANK.et (docs/traces.md)", write=write_chakra,
        heeds=frozenset({"ranks", "unroll", "dedup", "schema", "memory"}),
    ),
}  # fmt: skip


def write_trace(name: str, request: TraceRequest, said: Said = lambda line: None) -> Written:
    """Writes a trace in one of the formats.

    Raises:
        UsageError: There is no such format, or it does not heed what is asked for.
    """
    if name not in FORMATS:
        raise UsageError(f"no format {name!r}", where="--format", fix="one of " + ", ".join(FORMATS))
    default = TraceRequest(target=None, options=request.options, out=request.out)
    for flag in ("ranks", "unroll", "dedup", "schema", "memory"):
        if flag not in FORMATS[name].heeds and getattr(request, flag) != getattr(default, flag):
            raise UsageError(f"format {name} knows no {flag}", where=f"--{flag}", fix="leave it out")
    return FORMATS[name].write(request, said)
