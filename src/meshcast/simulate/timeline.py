"""`Timeline`: when each kernel of one rank runs, and where the step's time goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from meshcast.base import Group, Rows, format_time, made_quickly, shown
from meshcast.lower import Kernel
from meshcast.simulate.critical import Looped, Segment

COMPUTE, COMMUNICATION, COPY = "compute", "communication", "copy"


def stream_of(kernel: Kernel) -> str:
    """The stream a kernel runs on."""
    if kernel.collective is not None:
        return COMMUNICATION
    return COMPUTE if kernel.flags.isdisjoint(("beside", "prefetch")) else COPY


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Parts of a step in seconds; they add up to its duration.

    A kernel's time is `compute` or `memory` by what limits it, its fixed costs are `overhead`; copies that are waited for
    are `memory`; `exposed_communication` is communication during which nothing is computed or copied, and `idle` is when
    nothing runs.
    """

    compute: float = 0.0
    memory: float = 0.0
    exposed_communication: float = 0.0
    overhead: float = 0.0
    idle: float = 0.0

    def __add__(self, other: Breakdown) -> Breakdown:
        return Breakdown(
            compute=self.compute + other.compute,
            memory=self.memory + other.memory,
            exposed_communication=self.exposed_communication + other.exposed_communication,
            overhead=self.overhead + other.overhead,
            idle=self.idle + other.idle,
        )

    def __mul__(self, times: float) -> Breakdown:
        return Breakdown(
            compute=self.compute * times,
            memory=self.memory * times,
            exposed_communication=self.exposed_communication * times,
            overhead=self.overhead * times,
            idle=self.idle * times,
        )

    @property
    def total(self) -> float:
        """The duration."""
        return self.compute + self.memory + self.exposed_communication + self.overhead + self.idle


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTime:
    """Seconds in which collectives over one group of devices are under way.

    While several are and nothing is computed, each has an equal part of the exposed time, so that the parts of all groups
    add up to `Breakdown.exposed_communication`. What is not exposed runs beside compute or beside another group's.
    """

    group: Group
    busy: float
    exposed: float

    @property
    def overlapped(self) -> float:
        """Seconds beside something else."""
        return self.busy - self.exposed

    def times(self, count: int) -> GroupTime:
        """The breakdown of so many equal ones in a row."""
        return GroupTime(group=self.group, busy=count * self.busy, exposed=count * self.exposed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Seconds by which what is under way at once is longer than it would be alone."""

    compute: float = 0.0  # of compute kernels, beside communication
    communication: float = 0.0  # of collectives, beside each other or beside compute

    def __add__(self, other: Slowdown) -> Slowdown:
        return Slowdown(compute=self.compute + other.compute, communication=self.communication + other.communication)

    def __mul__(self, times: float) -> Slowdown:
        return Slowdown(compute=self.compute * times, communication=self.communication * times)


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A kernel on its stream, in seconds from the start of its block."""

    kernel: Kernel
    stream: str
    start: float
    end: float
    channel: int = 0  # of a collective, from 1: those of one channel follow each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A block run `trips` times in a row (a loop), or once (a branch), from `start`.

    Beside every turn `host_bytes` move between the device and its host, `fetched_bytes` of them from the host, in
    `copying` seconds.
    """

    label: str
    body: Timeline
    trips: int
    start: float
    end: float
    host_bytes: int = 0
    fetched_bytes: int = 0
    copying: float = 0.0


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When one rank runs what in a step; loops are kept folded."""

    spans: tuple[Span | Repeat, ...] = field(repr=False)
    duration: float
    breakdown: Breakdown
    communication_busy: float  # seconds of all collectives, exposed or not
    energy: float  # joules above idle
    groups: tuple[GroupTime, ...] = ()
    slowdown: Slowdown = Slowdown()
    critical: tuple[Segment, ...] = field(
        default=(), repr=False
    )  # of a whole step: what sets the duration, adding up to it
    path: tuple[Segment | Looped, ...] = field(default=(), repr=False)  # the same of any block, loops folded

    def walk(self, count: int = 1) -> Iterator[tuple[Span, int]]:
        """Every span with how often it runs."""
        around = [(iter(self.spans), count)]
        while around:
            spans, count = around.pop()
            for span in spans:
                if isinstance(span, Span):
                    yield span, count
                else:
                    around += (spans, count), (iter(span.body.spans), count * span.trips)
                    break

    def lasting(self, seconds: float, why: str = "waiting for the host") -> Timeline:
        """A copy with idle time at its end, so that it lasts at least so long."""
        idle = seconds - self.duration
        if idle <= 0:
            return self
        waiting = Segment(kind="idle", what=why, seconds=idle)
        return replace(
            self,
            duration=seconds,
            breakdown=self.breakdown + Breakdown(idle=idle),
            critical=(*self.critical, waiting),
            path=(*self.path, waiting),
        )

    def summary_rows(self) -> Rows:
        """The duration and where it goes."""
        parts = ("compute", "memory", "exposed_communication", "overhead", "idle")
        return [
            ("duration", format_time(self.duration)),
            *((f"  {part.replace('_', ' ')}", format_time(getattr(self.breakdown, part))) for part in parts),
            ("communication", f"{format_time(self.communication_busy)} of collectives"),
            ("spans", f"{len(self.spans)} at the top level, loops folded"),
        ]
