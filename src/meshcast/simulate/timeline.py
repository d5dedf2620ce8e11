"""`Timeline`: when each kernel of one rank runs, and where the step's time goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from meshcast.display import Rows, shown
from meshcast.lower.kernel import Kernel
from meshcast.units import format_time

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
class Span:
    """A kernel on its stream, in seconds from the start of its block."""

    kernel: Kernel
    stream: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A block run `trips` times in a row (a loop), or once (a branch), from `start`."""

    label: str
    body: Timeline
    trips: int
    start: float
    end: float


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What one rank does, loops kept folded."""

    spans: tuple[Span | Repeat, ...] = field(repr=False)
    duration: float
    breakdown: Breakdown
    communication_busy: float  # seconds the communication stream is in use, exposed or not
    energy: float  # joules above idle

    def walk(self, count: int = 1) -> Iterator[tuple[Span, int]]:
        """Every span with how often it runs."""
        for span in self.spans:
            if isinstance(span, Span):
                yield span, count
            else:
                yield from span.body.walk(count * span.trips)

    def lasting(self, seconds: float) -> Timeline:
        """The same with idle time at its end, so that it lasts at least so long."""
        idle = seconds - self.duration
        if idle <= 0:
            return self
        return replace(self, duration=seconds, breakdown=self.breakdown + Breakdown(idle=idle))

    def summary_rows(self) -> Rows:
        """The duration and where it goes."""
        parts = ("compute", "memory", "exposed_communication", "overhead", "idle")
        return [
            ("duration", format_time(self.duration)),
            *((f"  {part.replace('_', ' ')}", format_time(getattr(self.breakdown, part))) for part in parts),
            ("communication", f"{format_time(self.communication_busy)} on its stream"),
            ("spans", f"{len(self.spans)} at the top level, loops folded"),
        ]
