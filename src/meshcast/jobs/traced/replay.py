"""Traces run in time: every stream takes the ready step with the lowest number, collectives wait for all their members.

    start(x) = max(end of what x waits for, end of what its stream ran before)
    collective k: start = max over its members of their arrival; a receive ends when its message has arrived

Collectives of one group are matched with those of their kind and size in the order in which ranks come to them.

A stream is held by its step until that ends, also while a collective waits for others or a message is on its way; a receive
holds none. These are ASTRA-sim's rules but for its number of streams: with `shared`, all of a rank's communication has one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.steps import TraceStep
from meshcast.jobs.traced.stuck import Stuck

Alike = tuple[str, int, int]  # `Step.alike`


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """When the steps of one rank of each class run.

    Attributes:
        starts: When each begins, by class and step; of a collective, when all have come.
        ends: When each ends.
        duration: When the last ends.
    """

    starts: tuple[list[float], ...] = field(repr=False)
    ends: tuple[list[float], ...] = field(repr=False)
    duration: float


def replay(job: TracedRanks, seconds: Sequence[Sequence[float]], *, shared: bool = False) -> Replayed:
    """Runs a job.

    Args:
        job: The job.
        seconds: The seconds of every step, by class.
        shared: Whether all communication of a rank takes turns.

    Raises:
        InputError: Ranks wait for each other for ever.
    """
    return _Replay(job, seconds, shared=shared).run()


class _Replay:
    def __init__(self, job: TracedRanks, seconds: Sequence[Sequence[float]], *, shared: bool) -> None:
        self._job = job
        self._seconds = seconds
        self._shared = shared
        self._missing = [[len(step.before) for step in steps] for steps in job.steps]
        self._after = [_followers(steps) for steps in job.steps]
        self._ready: list[dict[tuple[str, int], list[tuple[int, int]]]] = [{} for _ in job.steps]
        self._busy: list[dict[tuple[str, int], int]] = [{} for _ in job.steps]  # stream, and the step that holds it
        self.starts = [[-1.0] * len(steps) for steps in job.steps]
        self.ends = [[-1.0] * len(steps) for steps in job.steps]
        self._events: list[tuple[float, int, int, int]] = []  # time, order, class, step
        self._count = 0
        self._left = sum(map(len, job.steps))
        self._meetings: dict[tuple[int, int, Alike, int], list[tuple[int, int]]] = {}
        self._met: dict[
            tuple[int, int], list[tuple[int, int]]
        ] = {}  # of a collective that has begun: who else has come
        self._nth: list[dict[tuple[int, Alike], int]] = [{} for _ in job.steps]
        self._arrived: set[tuple[int, int, int, int]] = set()
        self._expected: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self._parties = [_parties(job, number) for number in range(len(job.classes))]
        # Which message of its kind a step is, by the order of the file: both sides number them so.
        self._message = [_numbered(steps) for steps in job.steps]

    def run(self) -> Replayed:
        """All of it."""
        for number, steps in enumerate(self._job.steps):
            for index, step in enumerate(steps):
                if not step.before:
                    self._get_ready(number, index, 0.0)
            self._start_all(number, 0.0)
        now = 0.0
        while self._events:
            now, _, number, index = heapq.heappop(self._events)
            self._end(number, index, now)
        if self._left:
            raise self._stuck().error()
        return Replayed(starts=tuple(self.starts), ends=tuple(self.ends), duration=now)

    def _stream(self, step: TraceStep) -> tuple[str, int]:
        return ("link", 0) if self._shared and step.stream[0] == "link" else step.stream

    def _get_ready(self, number: int, index: int, now: float) -> None:
        step = self._job.steps[number][index]
        if step.does == "receive":
            key = self._key_of_receive(number, index)
            self.starts[number][index] = now
            if key in self._arrived:
                self._at(now, number, index)
            else:
                self._expected[key] = (number, index)
        elif step.does == "nothing":
            self.starts[number][index] = now
            self._at(now, number, index)
        else:
            heapq.heappush(self._ready[number].setdefault(self._stream(step), []), (step.number, index))

    def _at(self, time: float, number: int, index: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, number, index))

    def _start_all(self, number: int, now: float) -> None:
        for stream, queue in self._ready[number].items():
            if queue and stream not in self._busy[number]:
                self._busy[number][stream] = heapq.heappop(queue)[1]
                self._start(number, self._busy[number][stream], now)

    def _start(self, number: int, index: int, now: float) -> None:
        step = self._job.steps[number][index]
        self.starts[number][index] = now
        if step.does != "collective":
            self._at(now + self._seconds[number][index], number, index)
            return
        place = int(step.group)
        key = (place, step.alike)
        nth = self._nth[number].get(key, 0)
        self._nth[number][key] = nth + 1
        party = self._parties[number][place]
        met = self._meetings.setdefault((*party[0], step.alike, nth), [])
        met.append((number, index))
        self._met[number, index] = met
        if len(met) == len(party):
            longest = max(self._seconds[other][their] for other, their in met)
            for other, their in met:
                self.starts[other][their] = now
                self._at(now + longest, other, their)

    def _end(self, number: int, index: int, now: float) -> None:
        step = self._job.steps[number][index]
        self.ends[number][index] = now
        self._left -= 1
        if step.does not in ("receive", "nothing"):
            del self._busy[number][self._stream(step)]
        if step.does == "send":
            key = self._key_of_send(number, index)
            self._arrived.add(key)
            if key in self._expected:
                self._at(now, *self._expected[key])
        for after in self._after[number][index]:
            self._missing[number][after] -= 1
            if not self._missing[number][after]:
                self._get_ready(number, after, now)
        self._start_all(number, now)

    def _key_of_receive(self, number: int, index: int) -> tuple[int, int, int, int]:
        step = self._job.steps[number][index]
        return number, step.peer, step.tag, self._message[number][index]

    def _key_of_send(self, number: int, index: int) -> tuple[int, int, int, int]:
        """The receive that a send is for, as the receiver's class calls it."""
        step, sender = self._job.steps[number][index], self._job.classes[number]
        receiver = self._job.peers_of[sender][step.peer] if not self._job.alone else sender
        peers = self._job.peers_of[receiver]
        place = peers.index(sender) if sender in peers else step.peer
        return int(self._job.of_rank[receiver]), place, step.tag, self._message[number][index]

    def _stuck(self) -> Stuck:
        """What every step that has not ended waits for."""
        senders = {
            self._key_of_send(number, index): (number, index)
            for number, steps in enumerate(self._job.steps)
            for index, step in enumerate(steps)
            if step.does == "send"
        }
        waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
        elsewhere = set()
        for number, steps in enumerate(self._job.steps):
            for index, step in enumerate(steps):
                if self.ends[number][index] >= 0:
                    continue
                found = [(number, before) for before in step.before]
                if not self._missing[number][index]:
                    holder = self._busy[number].get(self._stream(step), index)
                    if step.does == "receive":
                        found += [senders[key] for key in [self._key_of_receive(number, index)] if key in senders]
                        elsewhere.add((number, index))
                    elif holder != index:
                        found.append((number, holder))
                    elif step.does == "collective":
                        found += self._absent(number, index)
                        elsewhere.add((number, index))
                waits[number, index] = [each for each in found if self.ends[each[0]][each[1]] < 0]
        return Stuck(job=self._job, waits=waits, elsewhere=frozenset(elsewhere))

    def _absent(self, number: int, index: int) -> list[tuple[int, int]]:
        """Steps of other ranks that a collective waits for: the next like it of each that has not come."""
        step = self._job.steps[number][index]
        here = {(other, int(self._job.steps[other][i].group)) for other, i in self._met[number, index]}
        found = []
        for other, place in self._parties[number][int(step.group)]:
            steps = self._job.steps[other]
            if (other, place) not in here:
                found += [
                    (other, i)
                    for i in _by_number(steps)
                    if steps[i].does == "collective" and int(steps[i].group) == place and steps[i].alike == step.alike
                    and self.starts[other][i] < 0
                ][:1]  # fmt: skip
        return found


def _followers(steps: Sequence[TraceStep]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in steps]
    for index, step in enumerate(steps):
        for before in step.before:
            found[before].append(index)
    return found


def _numbered(steps: Sequence[TraceStep]) -> dict[int, int]:
    """Which of the messages of its kind, peer and tag a step is."""
    counts: dict[tuple[str, int, int], int] = {}
    found = {}
    for index, step in sorted(enumerate(steps), key=lambda item: item[1].number):
        if step.does in ("send", "receive"):
            key = (step.does, step.peer, step.tag)
            found[index] = counts.get(key, 0)
            counts[key] = found[index] + 1
    return found


def _parties(job: TracedRanks, number: int) -> list[list[tuple[int, int]]]:
    """For each group of a class: (class, place of the group there) of all classes in it, in order."""
    rank = job.classes[number]
    found = []
    for place, name in enumerate(job.groups_of[rank]):
        if job.alone:
            found.append([(number, place)])
            continue
        met = {(int(job.of_rank[member]), job.groups_of[member].index(name)) for member in job.groups[name]}
        found.append(sorted(met))
    return found


def _by_number(steps: Sequence[TraceStep]) -> list[int]:
    return sorted(range(len(steps)), key=lambda index: steps[index].number)
