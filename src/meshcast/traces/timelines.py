"""Timelines of a target: which ranks are drawn, and how many slices that makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshcast.base import UnsupportedError, format_bytes, parse_ranges, ranges
from meshcast.chakra import check_ranks
from meshcast.jobs import PipelineJob, TraceJob, one_program, resolve_job
from meshcast.options import Options
from meshcast.traces.anonymous import anonymous_timeline
from meshcast.traces.pipeline_slices import pipeline_timeline
from meshcast.traces.program_slices import program_timeline
from meshcast.traces.slices import JobTimeline, RankTimeline

ALL = "all"
LARGEST_FILE = 50_000_000  # bytes; viewers grow slow beyond


def job_timeline(
    target: Any, options: Options, *, unroll: bool | None = None, anonymise: bool = False, coarseness: float = 0.0,
    ranks: str | None = None,
) -> JobTimeline:  # fmt: skip
    """A step of a target in time.

    Args:
        target: Whatever `predict` takes, but traces; or what `job_source` found it to be.
        options: Everything else that the prediction depends on.
        unroll: Whether every turn of a loop is drawn; None for as long as that are not too many.
        anonymise: Whether names and places in the source are left out.
        coarseness: Share by which work and bytes may be off; 0 leaves them.
        ranks: Those that will be drawn of it, as in `drawn_ranks`.

    Raises:
        UsageError: It has not the ranks that are asked for, which is said before anything is predicted.
        UnsupportedError: It is a trace itself.
    """
    asked = () if ranks is None or ranks.strip() == ALL else parse_ranges(ranks)
    match resolved := resolve_job(target, options):
        case TraceJob():
            raise UnsupportedError(
                "a trace is not drawn: it says what is done, and for a part of it when", where=str(resolved.source.path),
                fix="name the program that it is of, or predict it",
            )  # fmt: skip
        case PipelineJob():
            check_ranks(asked, resolved.pipeline.devices)
            job = pipeline_timeline(*resolved.assembled(), unroll)
        case _:
            run = one_program(resolved).run
            check_ranks(asked, run.devices)
            job = program_timeline(run, unroll)
    return anonymous_timeline(job, coarseness) if anonymise else job


def drawn_ranks(job: JobTimeline, asked: str | None) -> list[tuple[int, RankTimeline]]:
    """The ranks of a timeline: one of each kind, or those that are asked for (`0,5,8-15` or `all`).

    Raises:
        UsageError: A rank is not there.
    """
    if asked is None:
        return [(int(kind.ranks[0]), kind) for kind in job.kinds]
    of_rank = {int(rank): kind for kind in job.kinds for rank in kind.ranks}
    wanted = range(job.ranks) if asked.strip() == ALL else parse_ranges(asked)
    check_ranks(wanted, job.ranks)
    return [(rank, of_rank[rank]) for rank in wanted]


def rank_name(rank: int, kind: RankTimeline, asked: str | None) -> str:
    """What a rank is called; where it stands for others of its kind, with them."""
    label = f" ({kind.label})" if kind.label else ""
    if asked is None and kind.ranks.size > 1:
        return f"rank {rank}{label}, one of {kind.ranks.size:,} alike: {ranges(int(r) for r in kind.ranks)}"
    return f"rank {rank}{label}"


def said_about(job: JobTimeline, drawn: int, asked: str | None, sizes: dict[Path, int]) -> Iterator[str]:
    """Lines for people about what was written."""
    kinds = f"{len(job.kinds)} kind{'s' if len(job.kinds) != 1 else ''} of rank"
    which = f"one rank for each of {kinds}" if asked is None else f"{drawn:,} of {job.ranks:,} ranks"
    total = sum(sizes.values())
    files = next(iter(map(str, sizes))) if len(sizes) == 1 else f"{len(sizes):,} files"
    yield f"{files}, {format_bytes(total)}: {which}, {'folded' if job.folded else 'unrolled'} loops"
    if asked is None and job.ranks > len(job.kinds):
        yield f"{job.ranks:,} ranks are drawn once for each kind; --ranks 0,5,8-15 or --ranks all draws others"
    if job.folded:
        yield "one turn of a loop stands for all of them, that many times as long; --unroll draws every turn"
    if any(size > LARGEST_FILE for size in sizes.values()):
        largest = max(sizes, key=lambda path: sizes[path])
        ways = ["fewer ranks (--ranks)" if drawn > 1 else "", "" if job.folded else "folded loops (--no-unroll)"]
        ways.append("" if largest.suffix == ".gz" else f"a compressed file (-o {largest.name}.gz)")
        yield (
            f"{largest} has {format_bytes(sizes[largest])}, more than the {format_bytes(LARGEST_FILE)} that viewers take easily, "
            f"as there are {job.slices:,} slices; smaller with " + ", or ".join(way for way in ways if way)
        )
