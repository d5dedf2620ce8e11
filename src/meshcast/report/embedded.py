"""The trace that a report carries: what Perfetto opens, as long as there is room for it.

`perfetto` writes it where its package is there, else it is a Kineto trace of the first rank, which Perfetto's page opens too. One
that takes more than its share of the file is tried again with folded loops and fewer kinds of rank, then left out; the page says
so, and which command writes it.
"""

from __future__ import annotations

import base64
import gzip
import io
from typing import TypedDict

from meshcast.base import MeshcastError, UnsupportedError
from meshcast.report.choosing import evenly
from meshcast.report.subject import Scene, Subject
from meshcast.traces import JobTimeline, RankTimeline, drawn_ranks, load_builder, write_kineto, write_perfetto

MOST_BYTES = 3_600_000  # of all traces of a report, packed and as text
MOST_SLICES = 60_000  # that are written: a second of CPU for some ten thousand


class Trace(TypedDict):
    """A trace: its file's name, and its bytes, gzipped and in base64; empty where there was no room."""

    scene: str
    file: str
    data: str
    note: str


def embedded_traces(subject: Subject, stem: str) -> list[Trace]:
    """A trace for every step that is drawn."""
    room = MOST_BYTES // max(1, len(subject.drawn))
    return [_trace(scene, stem, room, single=len(subject.drawn) == 1) for scene in subject.drawn]


def _trace(scene: Scene, stem: str, room: int, *, single: bool) -> Trace:
    name = stem if single else f"{stem}.{scene.name}"
    note = "it would be too large for this file: meshcast trace --format perfetto writes it"
    for job in dict.fromkeys((scene.drawn, scene.folded)):
        drawn = _kinds(job)
        if not drawn:
            continue
        try:
            data, ending = _written(job, drawn)
        except MeshcastError as error:
            note = str(error)
            break
        packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
        if len(packed) <= room:
            return {"scene": scene.name, "file": name + ending, "data": packed, "note": _said(job, drawn)}
    return {"scene": scene.name, "file": "", "data": "", "note": note}


def _kinds(job: JobTimeline) -> list[tuple[int, RankTimeline]]:
    """A rank of each kind that there is room for, evenly from the first to the last; none where one is too many."""
    drawn = drawn_ranks(job, None)
    most = int(MOST_SLICES / (job.slices / len(drawn))) if job.slices else len(drawn)
    return [drawn[place] for place in evenly(len(drawn), most)]


def _said(job: JobTimeline, drawn: list[tuple[int, RankTimeline]]) -> str:
    said = ["one turn of a loop stands for all"] if job.folded else []
    if len(drawn) < len(job.kinds):
        said.append(f"{len(drawn)} of {len(job.kinds)} kinds of rank are in it")
    return "; ".join(said)


def _written(job: JobTimeline, drawn: list[tuple[int, RankTimeline]]) -> tuple[bytes, str]:
    out = io.BytesIO()
    try:
        load_builder()
    except UnsupportedError:
        rank, kind = drawn[0]
        write_kineto(job, rank, f"rank {rank}", kind, out)
        return out.getvalue(), ".json.gz"
    write_perfetto(job, drawn, None, out)
    return out.getvalue(), ".pftrace.gz"
