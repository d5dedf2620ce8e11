"""What traces with durations recorded, replayed on all ranks: idle, exposed and critical time, stragglers, classes of kernels."""

from __future__ import annotations

from typing import TypedDict

from meshcast.report.breakdown import StepPart
from meshcast.report.choosing import evenly
from meshcast.report.subject import Subject
from meshcast.report.summary import Figure, figure
from meshcast.report.tables import Table, TableCell, column, table
from meshcast.traces import RankTimes, Understanding, dependencies_of, sizes_of

MOST_RANKS, MOST_ROWS = 32, 30
_TIME = (column("time", "s", "seconds"), column("share", "share", "share"))


class RankBar(TypedDict):
    """The device of a rank as parts of the whole span."""

    label: str
    parts: list[StepPart]


class RecordedSection(TypedDict):
    """The section."""

    figures: list[Figure]
    span_s: float
    bars: list[RankBar]
    tables: list[Table]


def recorded_section(subject: Subject) -> RecordedSection | None:
    """The section; None of anything but traces with durations."""
    if subject.recorded is None or subject.recorded.recorded is None:
        return None
    found = subject.recorded.recorded
    shown = [found.ranks[place] for place in evenly(len(found.ranks), MOST_RANKS)]
    return {
        "figures": [
            figure("recorded span", found.run.duration, "s", "recorded_span"),
            figure("idle for the host", found.host_bound, "share", "host_bound"),
            figure("kernels that are no products", found.without_products, "share", "without_products"),
            figure("ranks on the critical path", len({rank for rank, _, _ in found.critical}), "count", "critical_path"),
        ],
        "span_s": found.run.duration,
        "bars": [{"label": _named(each), "parts": _parts(each, found.run.duration)} for each in shown],
        "tables": [_ranks(found), _path(found), _exposed(found), _idle(found), _classes(found), _sizes(found), _links(found)],
    }  # fmt: skip


def _named(each: RankTimes) -> str:
    return f"rank {each.rank}" + (f" and {each.ranks - 1} like it" if each.ranks > 1 else "")


def _parts(each: RankTimes, whole: float) -> list[StepPart]:
    """Computing, communication or copies alone, and the rest of the job's span."""
    return [
        {"name": "compute", "label": "computing", "seconds": each.computing},
        {"name": "exposed_communication", "label": "communication or copies alone", "seconds": each.not_computing},
        {"name": "idle", "label": "idle", "seconds": max(0.0, whole - each.computing - each.not_computing)},
    ]


def _ranks(found: Understanding) -> Table:
    rows: list[list[TableCell]] = [
        [_named(each), each.computing, each.not_computing, each.idle, each.waited, each.late]
        for each in sorted(found.ranks, key=lambda each: -each.late)
    ]
    columns = (
        column("device"), column("computing", "s", "seconds"), column("communication alone", "s", "exposed"),
        column("idle", "s", "idle"), column("waited for others", "s", "waited"), column("others waited", "s", "straggler"),
    )  # fmt: skip
    note = "between a device's first and last work; those that others waited for most come first"
    return table("ranks", "Devices, stragglers first", columns, rows, most=MOST_ROWS, note=note)


def _shares(name: str, caption: str, head: str, seconds: dict[str, float], whole: float, note: str = "") -> Table:
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    rows: list[list[TableCell]] = [
        [each, value, value / whole if whole else 0.0] for each, value in ordered if value > 0
    ]
    return table(name, caption, (column(head), *_TIME), rows, most=MOST_ROWS, note=note)


def _path(found: Understanding) -> Table:
    return _shares(
        "path", "The critical path", "what", found.critical_by, found.run.duration, "share of the whole span"
    )


def _exposed(found: Understanding) -> Table:
    groups: dict[str, float] = {}
    for each in found.ranks:
        for name, seconds in each.exposed.items():
            groups[name] = groups.get(name, 0.0) + each.ranks * seconds
    return _shares("exposed", "Exposed communication by group", "group", groups, *_of_devices(found))


def _idle(found: Understanding) -> Table:
    causes: dict[str, float] = {}
    for each in found.ranks:
        for name, seconds in each.idle_for.items():
            causes[name] = causes.get(name, 0.0) + each.ranks * seconds
    return _shares("idle", "Idle devices, by what they waited for", "for", causes, *_of_devices(found))


def _of_devices(found: Understanding) -> tuple[float, str]:
    whole = sum(each.ranks * each.span for each in found.ranks)
    return whole, "seconds of all devices together, share of the time of all of them"


def _classes(found: Understanding) -> Table:
    total = sum(found.classes.values())
    return _shares(
        "kernel-classes",
        "Kernels by class",
        "class",
        found.classes,
        total,
        "share of all kernels' time, on all devices",
    )


def _sizes(found: Understanding) -> Table:
    rows: list[list[TableCell]] = [
        [name, each.count, each.least, each.median, each.most, each.total] for name, each in sizes_of(found.job).items()
    ]
    bytes_of = [column(name, "B", "node_bytes") for name in ("least", "median", "most", "in all")]
    columns = (column("class"), column("nodes", "count", "trace_nodes"), *bytes_of)
    return table("node-sizes", "Sizes of nodes", columns, rows, most=MOST_ROWS, note="of all devices together")


def _links(found: Understanding) -> Table:
    links = dependencies_of(found.job)
    rows: list[list[TableCell]] = [
        ["nodes", links.nodes], ["waits of one node for another", links.edges], ["nodes that wait for nothing", links.free],
        ["most that one node waits for", links.most_before], ["most that wait for one node", links.most_behind],
        ["longest row of nodes, each behind the one before", links.chain],
    ]  # fmt: skip
    note = f"of all devices together; {links.abreast:.2f} nodes of a device are abreast in the mean"
    columns = (column("what"), column("count", "count", "trace_nodes"))
    return table("dependencies", "Dependencies", columns, rows, most=MOST_ROWS, note=note)
