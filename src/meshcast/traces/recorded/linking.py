"""One rank's traces linked: segments of the host's threads, work of the device's streams, and what each waited for."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from meshcast.base import InputError
from meshcast.traces.recorded.collectives import COMMUNICATION_KERNEL, Exchange, exchange_of, of_kernel, of_profiler
from meshcast.traces.recorded.columns import LONG, NONE, SHORT, filled
from meshcast.traces.recorded.drafts import BEGINS, GOES_ON, PAUSES, WAITS, WORKS, Drafts
from meshcast.traces.recorded.events import DeviceTrace
from meshcast.traces.recorded.matching import matched
from meshcast.traces.recorded.operators import HostTrace, Operator
from meshcast.traces.recorded.streams import placed_work, waited_for
from meshcast.traces.recorded.threads import segments_of

PAUSE, DELAY = "host pause", "delay"
RECORD = "record_param_comms"
FEW = 0.9  # of operators: fewer that are linked are told
SHORTEST_DELAY = 500  # ns: what is shorter is rounding of the profiler's microseconds


@dataclass(slots=True, kw_only=True)
class LinkedRank:
    """The linked trace of one rank.

    Attributes:
        drafts: Its nodes, each behind what it waits for.
        start: When the window began that is linked, on the profiler's clock in nanoseconds; `end` when its last work ended.
        operators: Operators of the execution trace, and how many of them are linked.
        work: Pieces of work on the device, and how many of them have the call that launched them.
        notes: What was assumed or left out.
        groups: Process groups that the execution trace lists: members and size by name.
    """

    where: str
    drafts: Drafts = field(repr=False)
    start: int
    end: int
    rank: int | None
    world: int | None
    device_name: str
    operators: tuple[int, int]
    work: tuple[int, int]
    notes: list[str]
    groups: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)


def link_rank(device: DeviceTrace, host: HostTrace | None = None, step: int | None = None) -> LinkedRank:
    """The linked trace of a rank.

    Args:
        device: What its profiler recorded.
        host: Its execution trace; without one, operators are those of the profiler.
        step: One of the profiler's steps alone; None for what the execution trace covers, or all.

    Raises:
        InputError: There is no such step, or the two traces have nothing in common.
    """
    return _Linking(device, host, step).linked()


class _Linking:
    def __init__(self, device: DeviceTrace, host: HostTrace | None, step: int | None) -> None:
        self._device = device
        self._host = host
        self._operators: dict[int, Operator] = matched(host, device.host) if host is not None else {}
        if host is not None and not self._operators:
            raise InputError(
                f"none of {len(host.operators)} operators of {host.where} is among its {len(device.host)} events",
                where=device.where, fix="give the execution trace and the profile of one run and one rank",
            )  # fmt: skip
        self._window = self._spanned(step)
        correlated = set(device.work.correlation) - {NONE}
        events = device.host
        calls = {
            correlation: place
            for place, correlation in enumerate(events.correlation)
            if correlation in correlated and not events.is_op[place]
        }
        self._work = placed_work(device, calls, self._window)
        self._launched = {call: place for place, call in enumerate(self._work.call) if call != NONE}
        self._waits = waited_for(device, self._work, self._launched)
        self._segments = segments_of(events, self._has_segment, self._window)
        # By event: where its first segment is, and the event around it.
        self._first, self._parents = filled(SHORT, NONE, len(events)), filled(SHORT, NONE, len(events))
        for place, event in enumerate(self._segments.event):
            if event != NONE and self._segments.first[place]:
                self._first[event], self._parents[event] = place, self._segments.parent[place]
        self._begins = {row.start for row in self._segments.rows.values()}
        self._rows, self._ready = array(SHORT), array(LONG)
        self._place_rows()
        self._drafts = Drafts([*events.names.all, *device.work.names.all])
        self._unknown = 0

    def _place_rows(self) -> None:
        """When each piece of work could have begun; and the row of its draft, behind the host's and a delay of its own."""
        row = len(self._segments)
        for place, start in enumerate(self._work.start):
            ready = max([self._launch(place)[1], *(self._work.end[other] for other in self._behind(place))])
            row += start - ready >= SHORTEST_DELAY
            self._ready.append(ready)
            self._rows.append(row)
            row += 1

    def _spanned(self, step: int | None) -> tuple[int, int]:
        """From when to when what the host begins is linked."""
        events, work, steps = self._device.host, self._device.work, self._device.steps
        if step is not None:
            if step not in steps:
                have = f"steps are {min(steps)} to {max(steps)}" if steps else "it has no steps: call profiler.step()"
                raise InputError(f"no step {step}", where=self._device.where, fix=have)
            return steps[step]
        if self._operators:
            return min(map(events.start.__getitem__, self._operators)), 1 + max(
                map(events.end.__getitem__, self._operators)
            )
        first = min(min(row.start) for row in (events, work) if len(row))
        return first, 1 + max(max(row.end) for row in (events, work) if len(row))

    def linked(self) -> LinkedRank:
        """All of it."""
        self._add_host()
        self._add_work()
        self._drafts.put_in_rows()
        ends = [self._segments.end[row[-1]] for row in self._segments.rows.values()] + [*self._work.end]
        return LinkedRank(
            where=self._device.where, drafts=self._drafts, start=self._window[0],
            end=max(ends, default=self._window[1]), rank=self._device.rank, world=self._device.world,
            device_name=self._device.device_name, notes=self._said(),
            operators=(0 if self._host is None else self._asked(), len(self._operators)),
            work=(len(self._work), len(self._work) - self._orphans()), groups={} if self._host is None else self._host.groups,
        )  # fmt: skip

    def _asked(self) -> int:
        """Operators of the execution trace that something ran for."""
        assert self._host is not None
        return sum(not each.is_root and each.record > 0 for each in self._host.operators.values())

    def _has_segment(self, place: int) -> bool:
        return bool(self._device.host.is_op[place]) or place in self._launched or place in self._waits

    def _add_host(self) -> None:
        """The host's drafts, a segment each, with what a segment waits for, of which its own time does not count."""
        events, segments, drafts = self._device.host, self._segments, self._drafts
        pause = drafts.named(PAUSE)
        lanes = _lanes(events.threads.all, segments.rows)
        for thread, row in segments.rows.items():
            for place in row:
                event = segments.event[place]
                begins = event != NONE and segments.first[place]
                deps = [place - 1] if place > row.start else []
                behind = segments.start[place]
                if (other := segments.waits_for.get(place)) is not None:
                    deps.append(other)
                    behind = max(behind, segments.end[other])
                for each in self._waits.get(event, ()) if begins else ():
                    deps.append(self._rows[each])
                    behind = max(behind, self._work.end[each])
                start = min(behind, segments.end[place])
                parent = self._parents[event] if event != NONE else NONE
                drafts.add_draft(
                    pause if event == NONE else events.name[event],
                    PAUSES if event == NONE else BEGINS if begins else GOES_ON, start, segments.end[place] - start,
                    lanes[thread], deps, external=-1 if event == NONE else events.external[event],
                    parent=NONE if parent == NONE else self._first[parent],
                )  # fmt: skip
                if begins and event in self._operators:
                    drafts.operator[place] = self._operators[event]

    def _add_work(self) -> None:
        """The device's drafts, each behind a delay where nothing explains all of its wait."""
        events, work, drafts = self._device.host, self._device.work, self._drafts
        names = len(events.names.all)
        delay = drafts.named(DELAY)
        for place, each in enumerate(self._work.work):
            start, stream, ready = self._work.start[place], work.stream[each], self._ready[place]
            chain = list(self._callers(self._work.call[place]))
            launching = self._launch(place)[0]
            deps = [] if launching == NONE else [launching]
            deps += (self._rows[other] for other in self._behind(place))
            if start - ready >= SHORTEST_DELAY:
                deps = [drafts.add_draft(delay, WAITS, ready, start - ready, stream, deps)]
            # The operator, not the call: a copy that blocks its call ends before that.
            parent = next((self._first[event] for event in chain if events.is_op[event]), NONE)
            row = drafts.add_draft(
                names + work.name[each], WORKS, start, self._work.end[place] - start, stream, deps,
                external=work.external[each], parent=parent,
            )  # fmt: skip
            operator = next((self._operators[event] for event in chain if event in self._operators), None)
            if operator is not None:
                drafts.operator[row] = operator
            if work.bytes[each]:
                drafts.moved[row] = work.bytes[each]
            name = work.name_of(each)
            if COMMUNICATION_KERNEL.search(name) and (said := self._communication(each, name, chain)) is not None:
                drafts.communication[row] = said

    def _callers(self, call: int) -> Iterator[int]:
        """A call and the events around it, innermost first."""
        place = call
        while place != NONE:
            yield place
            place = self._parents[place]

    def _communication(self, work: int, name: str, chain: list[int]) -> Exchange | None:
        """What a kernel exchanges; None where nothing says, and it is replayed as what it took."""
        found = of_profiler(self._device.work.said.get(work, {}))
        for place in chain:
            if found is not None:
                return found
            operator = self._operators.get(place)
            found = of_profiler(self._device.host.said.get(place, {}))
            if found is None and operator is not None and RECORD in operator.name:
                found = exchange_of(operator)
        found = found or self._named(chain) or of_kernel(name)
        if found is None or not (found.size or found.code is not None):
            self._unknown += 1
        return found

    def _named(self, chain: list[int]) -> Exchange | None:
        """The collective that an annotation around the launch names, as `nccl:all_to_all`."""
        names = map(self._device.host.name_of, chain)
        return next((of_kernel(name) for name in names if name.startswith("nccl:")), None)

    def _launch(self, place: int) -> tuple[int, int]:
        """The segment that a piece of work waits for, -1 for none; and when that lets it begin."""
        call = self._work.call[place]
        segment = NONE if call == NONE else self._first[call]
        if segment == NONE:
            return NONE, self._window[0]
        if self._work.start[place] >= self._segments.end[segment] and self._launched[call] not in self._waits.get(
            call, ()
        ):
            return segment, self._segments.end[segment]
        # It began before the call returned, which may wait for it: what is in front of the call lets it begin.
        return NONE if segment in self._begins else segment - 1, self._segments.start[segment]

    def _behind(self, place: int) -> list[int]:
        """Work that a piece of work waits for: what its stream ran before, and what that was told to wait for."""
        before = self._work.before[place]
        return [*([] if before == NONE else [before]), *self._work.after.get(place, ())]

    def _orphans(self) -> int:
        return self._work.call.count(NONE)

    def _said(self) -> list[str]:
        """What was assumed."""
        found = []
        if self._host is not None and len(self._operators) < FEW * self._asked():
            found.append(
                f"{len(self._operators):,} of {self._asked():,} operators of {self._host.where} are in the profile: the two may "
                "not be of one run"
            )
        if self._unknown:
            found.append(f"{self._unknown} communication kernels do not say what they exchange: replayed as they were")
        if orphans := self._orphans():
            found.append(f"{orphans} pieces of device work have no call that launched them in the file")
        return found


def _lanes(threads: Sequence[int | str], rows: dict[int, range]) -> dict[int, int]:
    """The number that nodes of a thread carry: its own, or where it comes among all where it has a name alone."""
    places = {thread: index for index, thread in enumerate(sorted((threads[each] for each in rows), key=str))}
    return {each: found if isinstance(found := threads[each], int) else places[found] for each in rows}
