"""Formats that traces are written in: one table, an entry a format.

To add one: a function that takes a `TraceRequest`, writes its files and gives a `Written`; what it is in `format_names`; and a
line in `FORMATS` that names the flags of `meshcast trace` beyond the common ones that it heeds. Others are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from meshcast.base import (
    UsageError,
    check_place,
    check_prefix,
    format_bytes,
    format_time,
    parse_ranges,
    told_each,
    whole_file,
    whole_files,
)
from meshcast.chakra import check_ranks
from meshcast.hardware import Cluster
from meshcast.jobs import (
    Detail,
    JobTrace,
    PipelineJob,
    job_source,
    not_alike,
    one_program,
    pipeline_trace,
    predict_job,
    program_trace,
    resolve_job,
)
from meshcast.traces.anonymous import anonymous_job, bound
from meshcast.traces.astra_inputs import astra_inputs
from meshcast.traces.astra_words import astra_lines
from meshcast.traces.chakra import ChakraFiles, check_schema, planned, write
from meshcast.traces.format_names import ANOTHER_PLACE
from meshcast.traces.kineto import check_name, other_ranks, rank_path, write_kineto
from meshcast.traces.passes import served, write_passes
from meshcast.traces.perfetto import load_builder, write_perfetto
from meshcast.traces.request import Teller, TraceRequest, Written
from meshcast.traces.slices import JobTimeline
from meshcast.traces.stablehlo import SUFFIXES, program_text
from meshcast.traces.timelines import ALL, drawn_ranks, job_timeline, rank_name, said_about

MOST_NODES = 200_000  # of all files together, some 40 MB, up to which loops are unrolled unless it is said otherwise
LEFT_OUT = "names, places in the source and constants are left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """How one format is written, and which of the request's fields (`ranks`, `unroll`, ...) it heeds."""

    write: Callable[[TraceRequest, Teller], Written]
    heeds: frozenset[str]


def job_trace(request: TraceRequest, asked: Collection[int] = ()) -> tuple[JobTrace, Cluster]:
    """The trace of a target: the nodes of every rank, equal ranks once; and the hardware that it is of.

    Raises:
        UsageError: It has not the ranks that are asked for, which is said before anything is predicted.
    """
    traced: Callable[[Detail], JobTrace]
    match resolved := resolve_job(request.target, request.options):
        case PipelineJob():
            check_ranks(asked, resolved.pipeline.devices)
            traced = partial(pipeline_trace, *resolved.assembled())
        case _:
            run = one_program(resolved).run
            check_ranks(asked, run.devices)
            traced = partial(program_trace, run)
    # On one channel, turns of a collective take turns with others': folded ones would hold the channel at once.
    unroll = resolved.given.run.channels == 1 if request.unroll is None else request.unroll
    job = traced(Detail(unroll=unroll, memory=request.memory))
    # Readers of one file for equal ranks, ASTRA-sim is none, replay what is predicted: a turn says all there is to say.
    if request.unroll is None and not request.dedup and job.folded and job.turns() <= MOST_NODES:
        job = traced(Detail(unroll=True, memory=request.memory))
    return job, resolved.cluster


def write_chakra(request: TraceRequest, said: Teller) -> Written:
    """Chakra execution traces, a file a rank."""
    wanted = ChakraFiles(
        prefix=request.out, generation=check_schema(request.schema), dedup=request.dedup,
        ranks=None if request.ranks in (None, ALL) else parse_ranges(request.ranks),
    )  # fmt: skip
    coarseness = request.coarseness
    check_prefix(request.out, where=f"-o {request.out}")
    job, cluster = job_trace(request, wanted.ranks or ())
    step = job.step_s
    if request.anonymise:
        job = anonymous_job(job, coarseness)
    what = planned(job, wanted)
    said_of_inputs: tuple[str, ...] = ()
    if len(what.files) == job.ranks > 1:
        inputs, said_of_inputs = astra_inputs(cluster, job.ranks)
        wanted = replace(wanted, inputs=inputs)
    nodes = sum(len(each.body) for each in job.classes)
    said(f"writing {len(what.files):,} files, {format_bytes(what.size)} in all, to {request.out}.RANK.et")
    files = write(job, wanted, what)
    return Written(
        lines=(
            f"{len(what.files):,} files of {job.ranks:,} ranks, {format_bytes(what.size)}: {len(job.classes)} kinds of rank "
            f"with {nodes:,} nodes, {len(job.groups.members):,} groups",
            *astra_lines(job, wanted, {rank for rank, _ in what.files}, files),
            *said_of_inputs,
            *_anonymous_lines(request, coarseness),
        ),
        summary={
            "format": "chakra", "ranks": job.ranks, "files": len(what.files), "bytes": what.size, "nodes": nodes,
            "classes": len(job.classes), "groups": len(job.groups.members), "step_time_s": step,
            "makespan_s": job.makespan_s,
            "prefix": str(request.out), "comm_groups": str(wanted.groups), "manifest": str(wanted.manifest),
            "astra_sim": {flag: str(path) for flag, path in files.items() if flag != "manifest"} if wanted.inputs else None,
            "anonymous": request.anonymise, "step_changed_at_most": bound(coarseness),
        },
    )  # fmt: skip


def _anonymous_lines(request: TraceRequest, changed: float) -> tuple[str, ...]:
    if not request.anonymise:
        return ()
    said = f"by at most {bound(changed):.2%}, as every duration is" if changed else "not at all"
    return (f"{LEFT_OUT}; replaying it changes the predicted step {said}",)


def _anonymous_drawing(request: TraceRequest) -> tuple[str, ...]:
    """The lines about an anonymous timeline, whose times stay, as it is not replayed."""
    if not request.anonymise:
        return ()
    share = request.coarseness
    sizes = f"operations and bytes are changed by at most {bound(share):.2%}, times are not" if share else "times stay"
    return (f"{LEFT_OUT}; {sizes}",)


def _timeline(request: TraceRequest) -> JobTimeline:
    return job_timeline(
        request.target,
        request.options,
        unroll=request.unroll,
        anonymise=request.anonymise,
        coarseness=request.coarseness,
        ranks=request.ranks,
    )


def _drawn(
    job: JobTimeline, request: TraceRequest, form: str, ranks: int, sizes: dict[Path, int], **more: int
) -> Written:
    lines = (*said_about(job, ranks, request.ranks, sizes), *_anonymous_drawing(request))
    return Written(
        lines=lines,
        summary={
            "format": form, "ranks": job.ranks, "ranks_drawn": ranks, "kinds": len(job.kinds), "files": list(map(str, sizes)),
            "bytes": sum(sizes.values()), "folded": job.folded, "step_time_s": job.step_s, "anonymous": request.anonymise, **more,
        },
    )  # fmt: skip


def _announced(job: JobTimeline, ranks: int, out: Path) -> str:
    return f"writing {ranks:,} rank{'s' if ranks != 1 else ''} of some {job.slices // len(job.kinds):,} slices to {out}"


def write_perfetto_file(request: TraceRequest, said: Teller) -> Written:
    """A Perfetto trace: one file."""
    check_place(request.out, where=f"-o {request.out}")
    load_builder()
    job = _timeline(request)
    ranks = drawn_ranks(job, request.ranks)
    said(_announced(job, len(ranks), request.out))
    with whole_file(request.out, fix=ANOTHER_PLACE) as out:
        counts = write_perfetto(job, ranks, request.ranks, out)
    return _drawn(job, request, "perfetto", len(ranks), {request.out: request.out.stat().st_size}, **counts)


def write_kineto_files(request: TraceRequest, said: Teller) -> Written:
    """Kineto's JSON, a file a rank."""
    check_place(request.out, where=f"-o {request.out}")
    check_name(request.out)
    job = _timeline(request)
    ranks = drawn_ranks(job, request.ranks)
    said(_announced(job, len(ranks), request.out))
    sizes: dict[Path, int] = {}
    slices = 0
    with whole_files(request.out, fix=ANOTHER_PLACE) as staged:
        for rank, kind in told_each(ranks, len(ranks), "ranks written"):
            path = rank_path(request.out, rank, len(ranks))
            with staged.open(path) as out:
                slices += write_kineto(job, rank, rank_name(rank, kind, request.ranks), kind, out)
            sizes[path] = staged.path(path).stat().st_size
    written = _drawn(job, request, "kineto", len(ranks), sizes, slices=slices)
    others = sorted(path.name for path in other_ranks(request.out) if path not in sizes)
    if not others:
        return written
    named = ", ".join(others[:4]) + (" ..." if len(others) > 4 else "")
    line = f"of another export there is {named}: tools that read the folder take both for one job"
    return replace(written, lines=(*written.lines, line))


def write_stablehlo(request: TraceRequest, said: Teller) -> Written:
    """The program itself, with what is predicted for it before and after."""
    check_place(request.out, where=f"-o {request.out}")
    if not request.out.name.endswith(SUFFIXES):
        raise UsageError(f"{request.out.name} is no StableHLO", where="-o", fix="let it end in .mlir or .mlir.gz")
    job = one_program(resolve_job(request.target, request.options))
    program = job.program
    if job.mesh is not None:
        raise UsageError(
            f"the program is written for the mesh {program.mesh}: another one is chosen where it is predicted",
            where="--mesh", fix="leave it out",
        )  # fmt: skip
    text = program_text(program, anonymise=request.anonymise)
    said(f"writing the program of {program.devices} devices to {request.out}")
    with whole_files(request.out, fix=ANOTHER_PLACE) as staged:
        with staged.open(request.out) as out:
            out.write(text.encode())
        # What a target is made with is in the file now.
        beyond = job.options.having(settings={}, dims={}, mesh=None, plan=None)
        before = predict_job(job).step_time_s
        after = predict_job(resolve_job(staged.path(request.out), beyond, cluster=job.cluster)).step_time_s
    change = abs(after / before - 1) if before and after else None
    shown = format_time(before) if change is not None and before else _unfit(before, after)
    lines = [f"{request.out}, {format_bytes(request.out.stat().st_size)}: {program.devices} devices"]
    if request.anonymise:
        changed = "" if change is None else f", changed by {change:.2g}"
        lines.append(f"{LEFT_OUT}; the predicted step: {shown}{changed}")
    return Written(
        lines=tuple(lines),
        summary={
            "format": "stablehlo", "files": [str(request.out)], "bytes": request.out.stat().st_size, "devices": program.devices,
            "step_time_s": before, "step_time_after_s": after, "anonymous": request.anonymise,
        },
    )  # fmt: skip


def _unfit(before: float | None, after: float | None) -> str:
    """Which of the two has no step."""
    if before is None and after is None:
        return "does not fit into memory, before and after"
    one, other, fits = ("before", "after", after) if before is None else ("after", "before", before)
    return f"does not fit into memory {one}, and takes {format_time(fits or 0.0)} {other}"


TIMELINE = frozenset({"ranks", "unroll", "anonymise", "coarsen"})
FORMATS: Mapping[str, TraceFormat] = {
    "chakra": TraceFormat(
        write=write_chakra,
        heeds=frozenset({"ranks", "unroll", "dedup", "schema", "memory", "anonymise", "coarsen"}),
    ),
    "perfetto": TraceFormat(
        write=write_perfetto_file, heeds=TIMELINE,
    ),
    "kineto": TraceFormat(
        write=write_kineto_files,
        heeds=TIMELINE,
    ),
    "stablehlo": TraceFormat(
        write=write_stablehlo,
        heeds=frozenset({"anonymise"}),
    ),
}  # fmt: skip


def write_trace(name: str, request: TraceRequest, said: Teller = lambda line: None) -> Written:
    """Writes a trace in one of the formats.

    Raises:
        UsageError: There is no such format, or it does not heed what is asked for.
        UnsupportedError: Some devices are slower than others.
    """
    if name not in FORMATS:
        raise UsageError(f"no format {name!r}", where="--format", fix="one of " + ", ".join(FORMATS))
    default = TraceRequest(target=None, options=request.options, out=request.out)
    for flag in ("ranks", "unroll", "dedup", "schema", "memory", "anonymise", "coarsen"):
        if flag not in FORMATS[name].heeds and getattr(request, flag) != getattr(default, flag):
            where = "--no-memory" if flag == "memory" else f"--{flag}"
            raise UsageError(f"format {name} knows no {flag}", where=where, fix="leave it out")
    conditions = request.options.network.conditions
    if conditions.kinds or any(share != 1 for share in conditions.speed.values()):
        raise not_alike()
    request = replace(request, target=job_source(request.target))  # looked at once, whatever is asked of it
    if (serving := served(request)) is not None:
        return write_passes(name, serving, request, FORMATS[name].write, said)
    return FORMATS[name].write(request, said)
