"""`simulate_flows`: several collectives on one fabric, from event to event.

Between two events the same phases are under way and every pace is constant. Events are ends of phases and starts of
jobs, so their number grows with phases and not with steps, flows or devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshcast.base import UsageError
from meshcast.network.fabric.fabric import Fabric
from meshcast.network.fabric.links import Floats
from meshcast.network.flow.phase import FlowPhase, merged, phases_of
from meshcast.network.flow.sharing import shared_paces
from meshcast.network.flow.traffic import FlowTraffic

_KEPT = 4096  # sets of phases whose paces are remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowJob:
    """A collective that starts at a time, or when other jobs have ended; perhaps several times in a row."""

    name: str
    traffic: FlowTraffic
    start_s: float = 0.0
    after: tuple[str, ...] = ()
    repeats: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """When a job ran, and how long it would have taken alone."""

    name: str
    start_s: float
    end_s: float
    alone_s: float

    @property
    def seconds(self) -> float:
        """The seconds from the first flow's start to the last one's end."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelUse:
    """What the links of a level carried, and the share of their rate over the whole time that this is."""

    level: str
    links: int
    sent: float
    least: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowResult:
    """Times of all jobs, and the bytes that each link of the fabric carried."""

    seconds: float
    jobs: tuple[JobTime, ...]
    sent: Floats
    levels: tuple[LevelUse, ...]
    events: int

    def job(self, name: str) -> JobTime:
        """The job with this name."""
        return next(job for job in self.jobs if job.name == name)


class SharedFabric:
    """A fabric with what was asked of it: phases by collective, and paces by the phases that are under way at once."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._phases: dict[tuple[object, ...], tuple[FlowPhase, ...]] = {}
        self._merged: dict[tuple[object, ...], FlowPhase] = {}
        self._paces: dict[tuple[bytes, ...], Floats] = {}

    def phases(self, traffic: FlowTraffic) -> tuple[FlowPhase, ...]:
        """The phases of a collective."""
        key = _key(traffic)
        if key not in self._phases:
            outside = traffic.groups[(traffic.groups < 0) | (traffic.groups >= self.fabric.devices)]
            if outside.size:
                raise UsageError(
                    f"no device {outside[0]} among the {self.fabric.devices} of the fabric",
                    where=self.fabric.name,
                    fix="build the fabric for as many devices as the groups name",
                )
            self._phases[key] = phases_of(self.fabric, traffic)
        return self._phases[key]

    def alone(self, traffic: FlowTraffic) -> float:
        """Seconds of a collective that has the fabric to itself."""
        return math.fsum(phase.seconds for phase in self.phases(traffic))

    def paces(self, phases: Sequence[FlowPhase]) -> Floats:
        """Phases per second of each of these while all are under way; equal sets are worked out once."""
        order = sorted(range(len(phases)), key=lambda index: phases[index].key)
        key = tuple(phases[index].key for index in order)
        if key not in self._paces:
            if len(self._paces) >= _KEPT:
                self._paces.pop(next(iter(self._paces)))
            self._paces[key] = shared_paces([phases[index] for index in order], self.fabric.capacity)
        result = np.empty(len(phases))
        result[order] = self._paces[key]
        return result

    def rates(self, active: Sequence[FlowTraffic]) -> tuple[float, ...]:
        """Collectives per second of each of these while all are under way; 1 / `alone` for one by itself.

        Each counts with what it asks of the links on average over its time, whichever of its stages it is in, so that a
        simulation of steps can ask again only when a collective starts or ends.
        """
        whole = [self._whole(traffic) for traffic in active]
        busy = [index for index, phase in enumerate(whole) if phase is not None]
        paces = self.paces([phase for phase in whole if phase is not None]) if busy else np.empty(0)
        rates = [math.inf] * len(whole)
        for index, pace in zip(busy, paces, strict=True):
            rates[index] = float(pace)
        return tuple(rates)

    def _whole(self, traffic: FlowTraffic) -> FlowPhase | None:
        phases = self.phases(traffic)
        if not phases:
            return None
        key = _key(traffic)
        if key not in self._merged:
            self._merged[key] = merged(phases)
        return self._merged[key]

    def simulate(self, jobs: Sequence[FlowJob]) -> FlowResult:
        """Times of jobs that share the fabric.

        Raises:
            UsageError: Two jobs have one name, or jobs wait for unknown ones or for each other.
        """
        _check(jobs)
        phases = {job.name: self.phases(job.traffic) * job.repeats for job in jobs}
        start: dict[str, float] = {}
        end: dict[str, float] = {}
        position = dict.fromkeys(phases, 0)
        remaining: dict[str, float] = {}
        now, events = 0.0, 0
        while len(end) < len(jobs):
            for job in jobs:
                waits = job.start_s > now or any(other not in end for other in job.after)
                if job.name not in start and not waits:
                    start[job.name] = now
                    if phases[job.name]:
                        remaining[job.name] = 1.0
                    else:
                        end[job.name] = now
            active = list(remaining)
            paces = self.paces([phases[name][position[name]] for name in active]) if active else np.empty(0)
            left = np.array([remaining[name] for name in active])
            until = [job.start_s for job in jobs if job.name not in start and job.start_s > now]
            step = float(min([*(left / paces), *(time - now for time in until)], default=0.0))
            if not active and not until:
                continue  # jobs that needed no time have ended, and others may start
            # Phases whose ends differ by rounding alone end together.
            done = left / paces <= step * (1 + 1e-12)
            now = min(until) if until and step == min(until) - now else now + step
            events += 1
            for name, pace, finished in zip(active, paces, done, strict=True):
                if not finished:
                    remaining[name] -= float(pace) * step
                elif position[name] + 1 < len(phases[name]):
                    position[name] += 1
                    remaining[name] = 1.0
                else:
                    del remaining[name]
                    end[name] = now
        return self._result(jobs, start, end, phases, events)

    def _result(
        self,
        jobs: Sequence[FlowJob],
        start: dict[str, float],
        end: dict[str, float],
        phases: dict[str, tuple[FlowPhase, ...]],
        events: int,
    ) -> FlowResult:
        sent = np.zeros(len(self.fabric.links))
        for job in jobs:
            for phase in phases[job.name]:
                sent[phase.links] += phase.sent
        seconds = max(end.values(), default=0.0)
        times = tuple(
            JobTime(
                name=job.name, start_s=start[job.name], end_s=end[job.name],
                alone_s=job.repeats * self.alone(job.traffic),
            )
            for job in jobs
        )  # fmt: skip
        return FlowResult(
            seconds=seconds, jobs=times, sent=sent, levels=_level_use(self.fabric, sent, seconds), events=events
        )


def _key(traffic: FlowTraffic) -> tuple[object, ...]:
    return traffic.plan, traffic.key


def _check(jobs: Sequence[FlowJob]) -> None:
    names = [job.name for job in jobs]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two jobs are called {twice!r}", fix="give every job a name of its own")
    for job in jobs:
        if job.repeats < 1 or not 0 <= job.start_s < math.inf:
            raise UsageError(f"job {job.name!r}: {job.repeats} repeats from {job.start_s} s on")
        for other in job.after:
            if other not in names:
                raise UsageError(f"job {job.name!r} waits for {other!r}, which is no job")
    ready: set[str] = set()
    while waiting := [job for job in jobs if job.name not in ready]:
        free = [job.name for job in waiting if set(job.after) <= ready]
        if not free:
            circle = ", ".join(job.name for job in waiting)
            raise UsageError(f"jobs wait for each other: {circle}", fix="remove one of their 'after'")
        ready.update(free)


def _level_use(fabric: Fabric, sent: Floats, seconds: float) -> tuple[LevelUse, ...]:
    found: list[LevelUse] = []
    for index, level in enumerate(fabric.levels):
        rows = np.flatnonzero((fabric.links.level == index) & (fabric.capacity > 0))
        if not len(rows):
            continue
        use = sent[rows] / (fabric.capacity[rows] * seconds) if seconds else np.zeros(len(rows))
        shares = {"least": float(use.min()), "mean": float(use.mean()), "most": float(use.max())}
        found.append(LevelUse(level=level.name, links=len(rows), sent=float(sent[rows].sum()), **shares))
    return tuple(found)


def simulate_flows(fabric: Fabric, jobs: Sequence[FlowJob]) -> FlowResult:
    """Times of jobs that share a fabric, and what its links carried."""
    return SharedFabric(fabric).simulate(jobs)
