"""What is said about an export to people who give it to ASTRA-sim: its flags, or what it would miss; how long a step is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from meshcast.base import format_time, shortened
from meshcast.chakra import STEPS_OVERLAP, NodeType
from meshcast.jobs import JobTrace
from meshcast.traces.chakra import ChakraFiles

MOST_NAMED = 8  # ranks without a file
SAME = 1e-9  # shares of a step below which two lengths are one


def astra_lines(
    job: JobTrace, wanted: ChakraFiles, written: Collection[int], files: Mapping[str, Path]
) -> Iterator[str]:
    """Lines for people."""
    if missing := sorted(set(range(job.ranks)) - set(written)):
        why = "--dedup" if wanted.dedup else "--ranks"
        yield (
            f"ASTRA-sim opens a file for every rank and would miss {len(missing):,} of {job.ranks:,} "
            f"({shortened(missing, MOST_NAMED)}): leave out {why} for it"
        )
    else:
        yield "ASTRA-sim takes " + " ".join(f"--{flag}={path}" for flag, path in files.items() if flag != "manifest")
    if job.folded and any(piece.kind is NodeType.COLLECTIVE for each in job.classes for piece in each.body.pieces):
        yield (
            "a node stands for all turns of a loop: readers that time collectives themselves, as ASTRA-sim does, count the "
            "latency of one turn; --unroll has all of them"
        )
    if abs(job.makespan_s - job.step_s) > job.step_s * SAME:
        why = (
            "as ranks go on without waiting for all others"
            if STEPS_OVERLAP in job.metadata
            else "where loops run turn by turn, and not all turns of a collective hold the channel at once"
        )
        yield (
            f"a step follows the last after {format_time(job.step_s)}, {why}; "
            f"one step alone as these files have it, which is what ASTRA-sim replays, ends after {format_time(job.makespan_s)}"
        )
