"""The timeline: what each kind of rank runs when, lane by lane, and the critical path, as much of it as a picture can show.

A slice is three numbers: when it starts, how long it takes (both in nanoseconds), and what it is. A file has `MOST_SLICES` of
them at the most. Beyond, kinds of rank are left out, then neighbours on a lane that are too short to be seen become one block;
both are said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypedDict

from meshcast.base import format_time
from meshcast.report.choosing import evenly
from meshcast.report.critical import Stretch, critical_stretches
from meshcast.report.subject import Scene, Subject
from meshcast.traces import JobTimeline, RankTimeline, Slice, laned

MOST_SLICES, MOST_KINDS = 60_000, 16
NANOSECONDS = 1e9
# What a lane is for, by how its name begins; others are communication.
_GROUPS = {"tasks": "task", "host": "task", "loops": "loop", "compute": "compute", "copies": "copy"}


class What(TypedDict):
    """What slices are: they share it."""

    name: str
    kind: str
    source: str
    facts: dict[str, str | int | float]


class Lane(TypedDict):
    """A stream of a rank; `slices` are start, duration and number of what, one after the other; `critical` those on the path."""

    name: str
    group: str
    slices: list[int]
    critical: list[int]


class RankLanes(TypedDict):
    """A kind of rank."""

    label: str
    ranks: int
    first: int
    lanes: list[Lane]


class SceneTimeline(TypedDict):
    """One step."""

    name: str
    times: str
    step_ns: int
    kinds: list[RankLanes]
    focus: int  # the kind that is shown first: that with most of the critical path
    what: list[What]
    folded: list[str]


class TimelineSection(TypedDict):
    """The section."""

    scenes: list[SceneTimeline]
    note: str


def timeline_section(subject: Subject) -> TimelineSection | None:
    """The section; None where there is no step, or none that can be drawn."""
    if not subject.drawn:
        return {"scenes": [], "note": subject.not_drawn} if subject.not_drawn else None
    return {"scenes": [_scene(scene, MOST_SLICES // len(subject.drawn)) for scene in subject.drawn], "note": ""}


def _scene(scene: Scene, most: int) -> SceneTimeline:
    job = scene.drawn
    kinds = _chosen(job)
    table = _Table(scene=scene)
    stretches = critical_stretches(scene, unrolled=not job.folded)
    folded = []
    if job.folded:
        folded.append("loops are drawn as one turn that stands for all, as long as all of them")
    if len(kinds) < len(job.kinds):
        folded.append(f"{len(kinds)} of {len(job.kinds)} kinds of rank are drawn, the first and the last among them")
    share = most // len(kinds)
    rows: list[RankLanes] = []
    merged, shortest = 0, 0.0
    for number, kind in kinds:
        lanes, count, limit = _lanes(kind, table, share, job.step_s, stretches.get(number, []))
        merged, shortest = merged + count, max(shortest, limit)
        rows.append({"label": kind.label, "ranks": int(kind.ranks.size), "first": int(kind.ranks[0]), "lanes": lanes})
    if merged:
        folded.append(
            f"{merged:,} slices shorter than {format_time(shortest)} are drawn in blocks with their neighbours"
        )
    return {
        "name": scene.name, "times": scene.times, "step_ns": round(job.step_s * NANOSECONDS), "kinds": rows,
        "focus": _focus([number for number, _ in kinds], stretches), "what": table.rows, "folded": folded,
    }  # fmt: skip


def _focus(numbers: list[int], stretches: dict[int, list[Stretch]]) -> int:
    lengths = [sum(each.end - each.start for each in stretches.get(number, [])) for number in numbers]
    return lengths.index(max(lengths))


def _chosen(job: JobTimeline) -> list[tuple[int, RankTimeline]]:
    """Kinds of rank that are drawn, evenly from the first to the last."""
    return [(place, job.kinds[place]) for place in evenly(len(job.kinds), MOST_KINDS)]


@dataclass(slots=True, kw_only=True)
class _Table:
    """What slices are, each once."""

    scene: Scene
    rows: list[What] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def number(self, each: Slice) -> int:
        what = each.what
        key: tuple[object, ...] = (id(what), each.turns)
        if what.category in ("task", "loop"):  # made anew for every slice
            key = (what.name, what.category, each.turns)
        if key not in self._known:
            facts = {name: value for name, value in what.facts.items() if name not in ("source", "low_us", "high_us")}
            if each.turns > 1:
                facts["launches"] = each.turns
            source = self.scene.line(str(what.facts.get("source", "")))
            self._known[key] = self.add(
                {"name": what.name, "kind": _kind(each), "source": source, "facts": _short(facts)}
            )
        return self._known[key]

    def block(self, count: int, kind: str) -> int:
        key = ("block", count, kind)
        if key not in self._known:
            self._known[key] = self.add({"name": f"{count:,} slices", "kind": kind, "source": "", "facts": {}})
        return self._known[key]

    def add(self, row: What) -> int:
        self.rows.append(row)
        return len(self.rows) - 1


def _short(facts: dict[str, str | int | float]) -> dict[str, str | int | float]:
    """Facts with six digits of numbers that are not whole."""
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in facts.items()}


def _kind(each: Slice) -> str:
    """What colours a slice: of compute what limits it, of a task its pass."""
    what = each.what
    if each.track.startswith("host"):
        return "host"
    if what.category == "task":
        return what.name.split(" ")[0]
    if what.category == "kernel":
        return str(what.facts.get("bound", "compute"))
    return {"collective": "communication", "send": "communication", "receive": "communication"}.get(
        what.category, what.category
    )


def _lanes(
    kind: RankTimeline, table: _Table, most: int, step_s: float, critical: list[Stretch]
) -> tuple[list[Lane], int, float]:
    """The lanes of a rank, how many slices became blocks, and how short those are."""
    tracks: dict[str, list[Slice]] = {}
    for each in laned(kind.slices(int(kind.ranks[0]))):
        tracks.setdefault(each.track, []).append(each)
    total = sum(map(len, tracks.values()))
    limit = 0.0
    if total > most:
        limit = step_s / 20_000
        while limit < step_s and sum(_count(slices, limit) for slices in tracks.values()) > most:
            limit *= 2
    lanes: list[Lane] = []
    if critical:
        lanes.append(_path(critical, table, most))
    merged = 0
    for track, slices in sorted(tracks.items(), key=lambda item: _place(item[0])):
        group = next((group for begin, group in _GROUPS.items() if track.startswith(begin)), "communication")
        numbers: list[int] = []
        marked: list[int] = []
        path = _Marks(stretches=critical, group=group)
        for first, last, count in _blocks(slices, limit):
            start = round(first.start * NANOSECONDS)
            what = table.number(first) if count == 1 else table.block(count, _kind(first))
            merged += count if count > 1 else 0
            if path.has(first, last):
                marked.append(len(numbers) // 3)
            numbers += [start, max(1, round(last.end * NANOSECONDS) - start), what]
        lanes.append({"name": track, "group": group, "slices": numbers, "critical": marked})
    return lanes, merged, limit


def _blocks(slices: Iterable[Slice], limit: float) -> Iterator[tuple[Slice, Slice, int]]:
    """Slices with the first, the last and the number of those that are drawn as one: neighbours that are shorter than `limit`.

    The first of a block is its longest, moved to where the block starts: the block has its colour.
    """
    run: list[Slice] = []
    for each in slices:
        short = each.end - each.start < limit
        if run and (not short or each.start - run[-1].end > limit):
            yield _block(run)
            run = []
        if short:
            run.append(each)
        else:
            yield each, each, 1
    if run:
        yield _block(run)


def _block(run: list[Slice]) -> tuple[Slice, Slice, int]:
    if len(run) == 1:
        return run[0], run[0], 1
    longest = max(run, key=lambda each: each.end - each.start)
    return replace(longest, start=run[0].start), run[-1], len(run)


def _count(slices: list[Slice], limit: float) -> int:
    """How many `_blocks` gives."""
    count, last = 0, None
    for each in slices:
        if each.end - each.start >= limit:
            count, last = count + 1, None
        else:
            count += last is None or each.start - last > limit
            last = each.end
    return count


@dataclass(slots=True, kw_only=True)
class _Marks:
    """Which slices of a lane are on the critical path; both come in order of time."""

    stretches: list[Stretch]
    group: str
    _at: int = 0

    def has(self, first: Slice, last: Slice) -> bool:
        middle = (first.start + last.end) / 2
        while self._at < len(self.stretches) and self.stretches[self._at].end <= middle:
            self._at += 1
        if self._at == len(self.stretches):
            return False
        here = self.stretches[self._at]
        return here.start <= middle and here.on(self.group, first)


def _path(stretches: list[Stretch], table: _Table, most: int) -> Lane:
    """The critical path as a lane of its own, neighbours of a kind together where there are too many."""
    numbers: list[int] = []
    known: dict[tuple[str, str], int] = {}
    for each in stretches[: most // 2]:
        key = (each.kind, each.what)
        if key not in known:
            known[key] = table.add({"name": each.what, "kind": each.kind, "source": "", "facts": {}})
        start = round(each.start * NANOSECONDS)
        numbers += [start, max(1, round(each.end * NANOSECONDS) - start), known[key]]
    return {"name": "critical path", "group": "path", "slices": numbers, "critical": []}


def _place(track: str) -> tuple[int, str]:
    order = ("tasks", "loops", "compute", "copies")
    return (order.index(track) if track in order else len(order), track)
