"""Where the time of a job of traces goes, by a replay of what was recorded: all ranks, streams, groups and hosts together.

Of every rank, between its first and its last work on the device (as Holistic Trace Analysis has them, `get_temporal_breakdown`):

    computing     = time in which a kernel runs that is neither communication nor a copy
    not computing = time in which only communication or copies run
    idle          = time in which nothing runs

Idle time belongs to what the work behind it waited for last: the host that launched it, communication, other work, or a delay
that nothing explains. A collective that ranks come to at different times makes the early ones wait for the last; its kernel runs
while they wait, and is communication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from meshcast.base import UnsupportedError
from meshcast.evidence import ATTENTION, CONVOLUTION, MATMUL
from meshcast.jobs import Replayed, TracedRanks, TraceFiles, TraceStep, read_traced, replay
from meshcast.simulate import Interval, covered, merged
from meshcast.traces.recorded.what_if import (
    ChangedReplay,
    Seconds,
    changed_by,
    check_named,
    kernel_class,
    replay_error,
    seconds_at,
)

PRODUCTS = (MATMUL, CONVOLUTION, ATTENTION)
COPY_NAMES = ("Memcpy", "Memset")
HOST, COMMUNICATION, WORK, DELAY = "the host", "communication", "other work", "a delay"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """The device of one rank; seconds.

    Attributes:
        rank: The lowest of those that do the same; `ranks` how many there are.
        span: From its first to its last work.
        idle_for: Idle time by what the next work waited for.
        exposed: Time of communication in which nothing computes, by group.
        waited: What it waited in collectives for those that came later.
        late: What others waited for it, as the last to come.
    """

    rank: int
    ranks: int
    span: float
    computing: float
    not_computing: float
    idle: float
    idle_for: dict[str, float]
    exposed: dict[str, float]
    waited: float
    late: float


@dataclass(frozen=True, kw_only=True)
class Understanding:
    """A job's time.

    Attributes:
        job: The job.
        run: When everything ran.
        seconds: Of every step, by class.
        what_if: What something faster changes, where that was asked for.
    """

    job: TracedRanks = field(repr=False)
    run: Replayed = field(repr=False)
    seconds: Seconds = field(repr=False)
    what_if: ChangedReplay | None = None

    @cached_property
    def ranks(self) -> tuple[RankTimes, ...]:
        """The device of every rank, ranks that do the same once."""
        waited, late = self._meetings()
        return tuple(self._rank(number, waited[number], late[number]) for number in range(len(self.job.classes)))

    @cached_property
    def classes(self) -> dict[str, float]:
        """Seconds of all ranks' kernels by class, the longest first."""
        found: dict[str, float] = {}
        for number, steps in enumerate(self.job.steps):
            count = int((self.job.of_rank == number).sum())
            for step, seconds in zip(steps, self.seconds[number], strict=True):
                if step.does in ("compute", "collective", "send") and not step.waits:
                    name = kernel_class(step)
                    found[name] = found.get(name, 0.0) + count * seconds
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def without_products(self) -> float:
        """The share of computing time in kernels that are no products, convolutions or attention."""
        computing = {name: seconds for name, seconds in self.classes.items() if not name.startswith("collective")}
        total = sum(computing.values())
        return sum(seconds for name, seconds in computing.items() if name not in PRODUCTS) / total if total else 0.0

    @property
    def host_bound(self) -> float:
        """The share of all devices' time that is idle for the host."""
        total = sum(each.ranks * each.span for each in self.ranks)
        return sum(each.ranks * each.idle_for.get(HOST, 0.0) for each in self.ranks) / total if total else 0.0

    @cached_property
    def critical(self) -> tuple[tuple[int, TraceStep, float], ...]:
        """The path that decides the end: (rank, step, its seconds), from the first to the last; over ranks in collectives."""
        return tuple(reversed(list(self._back())))

    @property
    def critical_by(self) -> dict[str, float]:
        """Seconds of the critical path by what runs."""
        found: dict[str, float] = {}
        for _, step, seconds in self.critical:
            name = "the host" if step.does == "host" else "a delay" if step.waits else kernel_class(step)
            found[name] = found.get(name, 0.0) + seconds
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def began(self, number: int, index: int) -> float:
        """When a step of a class runs; a collective's kernel from when its rank has come to it, also while it waits."""
        step = self.job.steps[number][index]
        return self._arrival(number, index) if step.does == "collective" else self.run.starts[number][index]

    def group_name(self, number: int, step: TraceStep) -> str:
        """The group that a class's communication is over."""
        if step.does != "collective":
            return "messages"
        return self.job.groups_of[self.job.classes[number]][int(step.group)] or "all ranks"

    def _arrival(self, number: int, index: int) -> float:
        """When a rank came to a step: when all that it waits for on its own had ended."""
        before = self.job.steps[number][index].before
        return max((self.run.ends[number][each] for each in before), default=0.0)

    def _meetings(self) -> tuple[list[float], list[float]]:
        """What each class waits in collectives for others, and what others wait for it."""
        waited, late = [0.0] * len(self.job.classes), [0.0] * len(self.job.classes)
        met: dict[float, list[tuple[float, int]]] = {}
        for number, steps in enumerate(self.job.steps):
            for index, step in enumerate(steps):
                if step.does == "collective":
                    met.setdefault(self.run.starts[number][index], []).append((self._arrival(number, index), number))
        for start, arrived in met.items():
            last = max(arrived)[1]
            for when, number in arrived:
                waited[number] += max(0.0, start - when)
                late[last] += max(0.0, start - when) if number != last else 0.0
        return waited, late

    def _rank(self, number: int, waited: float, late: float) -> RankTimes:
        steps, starts, ends = self.job.steps[number], self.run.starts[number], self.run.ends[number]
        running: list[tuple[float, float, int]] = []
        computing: list[Interval] = []
        by_group: dict[str, list[Interval]] = {}
        for index, step in enumerate(steps):
            begun = self.began(number, index)
            if step.waits or step.does not in ("compute", "collective", "send") or ends[index] <= begun:
                continue
            running.append((begun, ends[index], index))
            if step.does != "compute":
                by_group.setdefault(self.group_name(number, step), []).append((begun, ends[index]))
            elif not step.name.startswith(COPY_NAMES):
                computing.append((starts[index], ends[index]))
        running.sort()
        window = (running[0][0], max(end for _, end, _ in running)) if running else (0.0, 0.0)
        busy, left = covered([window], merged(computing))
        other, _ = covered(left, merged([(start, end) for start, end, _ in running]))
        exposed = {name: covered(left, merged(spans))[0] for name, spans in by_group.items()}
        span = window[1] - window[0]
        return RankTimes(
            rank=self.job.classes[number], ranks=int((self.job.of_rank == number).sum()), span=span, computing=busy,
            not_computing=other, idle=span - busy - other, idle_for=self._idle_for(number, running), exposed=exposed,
            waited=waited, late=late,
        )  # fmt: skip

    def _idle_for(self, number: int, running: Sequence[tuple[float, float, int]]) -> dict[str, float]:
        found: dict[str, float] = {}
        until = running[0][0] if running else 0.0
        for start, end, index in running:
            if start > until:
                for cause, seconds in self._causes(number, index, until, start):
                    found[cause] = found.get(cause, 0.0) + seconds
            until = max(until, end)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def _causes(self, number: int, index: int, since: float, until: float) -> Iterator[tuple[str, float]]:
        """What a gap in front of a step was for: a delay in front of it, and what that waited for last."""
        steps, ends = self.job.steps[number], self.run.ends[number]
        before = steps[index].before
        if len(before) == 1 and steps[before[0]].waits and steps[before[0]].does == "compute":
            begun = max(since, self.run.starts[number][before[0]])
            if begun < until:
                yield DELAY, until - begun
            until, before = begun, steps[before[0]].before
        if until <= since:
            return
        last = max(before, key=lambda each: ends[each], default=None)
        if last is None or steps[last].does == "host":
            yield HOST, until - since
        elif steps[last].does in ("collective", "send", "receive"):
            yield COMMUNICATION, until - since
        else:
            yield WORK, until - since

    def _back(self) -> Iterator[tuple[int, TraceStep, float]]:
        """The critical path from its end: each step, then what it waited for last; of a collective, on the last to come."""
        ends = [(max(row, default=0.0), number) for number, row in enumerate(self.run.ends)]
        number = max(ends)[1]
        index = max(range(len(self.run.ends[number])), key=lambda each: self.run.ends[number][each])
        for _ in range(sum(map(len, self.job.steps))):
            step = self.job.steps[number][index]
            if step.does == "collective":
                number, index = self._last_to_come(number, index)
                step = self.job.steps[number][index]
            start, end = self.run.starts[number][index], self.run.ends[number][index]
            yield self.job.classes[number], step, end - start
            before = [each for each in step.before if self.run.ends[number][each] <= start + 1e-12] or step.before
            if not before:
                return
            index = max(before, key=lambda each: (self.run.ends[number][each], each))

    def _last_to_come(self, number: int, index: int) -> tuple[int, int]:
        """The rank's class and step of a meeting that came last."""
        start = self.run.starts[number][index]
        step = self.job.steps[number][index]
        found = [(self._arrival(number, index), number, index)]
        for other, steps in enumerate(self.job.steps):
            if other != number:
                found += [
                    (self._arrival(other, each), other, each)
                    for each in self._at.get((other, start), ())
                    if steps[each].alike == step.alike
                ]
        return max(found)[1:]

    @cached_property
    def _at(self) -> dict[tuple[int, float], list[int]]:
        """Collectives of each class by when they began."""
        found: dict[tuple[int, float], list[int]] = {}
        for number, steps in enumerate(self.job.steps):
            for index, step in enumerate(steps):
                if step.does == "collective":
                    found.setdefault((number, self.run.starts[number][index]), []).append(index)
        return found


def understood(files: TraceFiles, faster: Mapping[str, float] | None = None) -> Understanding:
    """Where the time of a job goes, as its traces recorded it, or would go if some of it took less.

    Args:
        files: Its traces.
        faster: How many times as fast something is, by what it is: a class of kernels (`matmul`), `collective` for all of them,
            `host`, `pause` (of the host between operators) or `delay` (of the device); infinite where it takes nothing.

    Raises:
        InputError: The traces cannot be run.
        UnsupportedError: They have no durations.
        UsageError: Nothing in them is of a class that is to be faster.
    """
    job = read_traced(files)
    asked = dict(faster or {})
    check_named(job, asked, files.name)
    seconds = seconds_at(job, asked)
    run = replay(job, seconds)
    if not run.duration:
        raise UnsupportedError(
            "its nodes have no durations", where=files.name, fix="meshcast predict works them out on a device"
        )
    changed = changed_by(job, asked, run.duration, replay_error(files, job)) if asked else None
    return Understanding(job=job, run=run, seconds=seconds, what_if=changed)
