"""What a prediction says about communication: time by group, use of links, the schedule behind it, the critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meshcast.base import format_bytes, format_time, format_whole
from meshcast.hardware import Cluster
from meshcast.network import CollectivePlan
from meshcast.results.printer import percent
from meshcast.results.sections import Section, capped_lines, columns
from meshcast.simulate import Segment, Slowdown, Timeline

GROUP_ROWS, SEGMENT_ROWS = 6, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """Communication over one group of devices; exposed seconds of all groups add up to the breakdown's."""

    group: str
    group_size: int
    busy_s: float
    exposed_s: float
    overlapped_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """What one device sends over a level of the network in a step, and the share of what it could have sent."""

    level: str
    technology: str
    bytes_sent: float
    bandwidth: float  # bytes/s of one device, one direction
    utilisation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleUsed:
    """The scheduler that put the steps in order, with its channels and contention.

    Attributes:
        scheduler: A name of `Scheduling`, or `compiler`: the order that a compiler chose.
        channels: Collectives that could be under way at once.
        contention: Whether compute and communication slowed each other down: on, off, or `none`: nothing to model.
        overlap: The rewrites that were asked for.
    """

    scheduler: str
    channels: int
    contention: str
    overlap: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """All of it, for one step."""

    groups: tuple[GroupShare, ...]
    links: tuple[LinkUse, ...]
    schedule: ScheduleUsed
    slowdown: Slowdown
    critical: tuple[Segment, ...]

    def to_json(self) -> dict[str, Any]:
        """Fields of the prediction's object."""
        return {
            "communication_groups": [asdict(group) for group in self.groups],
            "links": [asdict(link) for link in self.links],
            "schedule": asdict(self.schedule),
            "slowdown_s": asdict(self.slowdown),
            "critical_path": {
                "seconds": by_kind(self.critical),
                "segments": [
                    {"kind": s.kind, "what": s.what, "count": s.count, "seconds": s.seconds, "loops": list(s.loops)}
                    for s in self.critical
                ],
            },
        }


def group_shares(timeline: Timeline) -> tuple[GroupShare, ...]:
    """Time by group, the most exposed first."""
    shares = [
        GroupShare(
            group=str(each.group),
            group_size=each.group.size,
            busy_s=each.busy,
            exposed_s=each.exposed,
            overlapped_s=each.overlapped,
        )
        for each in timeline.groups
    ]
    return tuple(sorted(shares, key=lambda share: (-share.exposed_s, -share.busy_s)))


def link_use(
    counted: Iterable[tuple[CollectivePlan, float]],
    cluster: Cluster,
    step: float,
    more: Mapping[str, float] | None = None,
) -> tuple[LinkUse, ...]:
    """What a step sends over every level, innermost first: `utilisation = bytes / (bandwidth * step)`.

    Args:
        counted: Plans of collectives, and how often each runs.
        cluster: The levels.
        step: Seconds of the step.
        more: Bytes that are sent besides, by level.
    """
    sent: defaultdict[str, float] = defaultdict(float, more or {})
    for plan, count in counted:
        for level, size in plan.level_bytes.items():
            sent[level] += count * size
    return tuple(
        LinkUse(
            level=level.name,
            technology=level.technology,
            bytes_sent=sent[level.name],
            bandwidth=level.bandwidth,
            utilisation=sent[level.name] / (level.bandwidth * step) if step else 0.0,
        )
        for level in cluster.levels
    )


def by_kind(path: Iterable[Segment]) -> dict[str, float]:
    """Seconds of a critical path by what they are spent on; they add up to the step."""
    seconds = {"compute": 0.0, "memory": 0.0, "communication": 0.0, "copy": 0.0, "idle": 0.0}
    for segment in path:
        seconds[segment.kind] += segment.seconds
    return seconds


def schedule_rows(found: Communication) -> list[tuple[str, str]]:
    """How communication was put beside compute, and what they cost each other."""
    used = found.schedule
    channels = f"{used.channels} channel{'s' if used.channels != 1 else ''}"
    rewrites = f", {used.overlap}" if used.overlap else ""
    rows = [("schedule", f"{used.scheduler}, {channels}, contention {used.contention}{rewrites}")]
    parts = []
    if found.slowdown.compute > 0:
        parts.append(f"compute took {format_time(found.slowdown.compute)} longer beside communication")
    if found.slowdown.communication > 0:
        beside = "beside compute and each other"
        parts.append(f"collectives took {format_time(found.slowdown.communication)} longer {beside}")
    return [*rows, ("", "; ".join(parts))] if parts else rows


def communication_sections(found: Communication, step: float) -> list[Section]:
    """Tables by group and level, and of the critical path."""
    if not found.groups:
        return []
    heads = columns("over", ">group", ">busy", ">overlapped", ">exposed", ">of step")
    rows = [
        (
            group.group,
            f"{group.group_size:,}",
            format_time(group.busy_s),
            format_time(group.overlapped_s),
            format_time(group.exposed_s),
            percent(group.exposed_s / step if step else 0.0),
        )
        for group in found.groups
    ]
    links = ", ".join(
        f"{link.level} {percent(link.utilisation)} ({format_bytes(link.bytes_sent)})" for link in found.links
    )
    groups = Section(title="Exposed and overlapped", columns=heads, rows=rows, note=f"links in use: {links}")
    return [capped_lines(groups, GROUP_ROWS), _critical(found.critical, step)]


def _critical(path: Sequence[Segment], step: float) -> Section:
    kinds = ", ".join(f"{kind} {format_time(value)}" for kind, value in by_kind(path).items() if value)
    longest = sorted(path, key=lambda segment: -segment.seconds)
    rows = [
        (
            segment.what if segment.count == 1 or segment.kind == "communication" else f"{segment.what} and others",
            segment.kind,
            ", ".join(segment.loops) or "-",
            format_whole(segment.count),
            format_time(segment.seconds),
            percent(segment.seconds / step if step else 0.0),
        )
        for segment in longest
    ]
    heads = columns("~longest segments", "kind", "in", ">count", ">time", ">of step")
    title = f"Critical path: {kinds}"
    return capped_lines(Section(title=title, columns=heads, rows=rows), SEGMENT_ROWS)
