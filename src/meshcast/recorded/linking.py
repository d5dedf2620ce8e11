"""One rank's traces linked: segments of the host's threads, work of the device's streams, and what each waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from meshcast.base import InputError
from meshcast.chakra import NodeType
from meshcast.recorded.collectives import COMMUNICATION_KERNEL, Exchange, of_kernel, of_operator, of_profiler
from meshcast.recorded.drafts import Draft, ordered
from meshcast.recorded.events import DeviceTrace
from meshcast.recorded.matching import matched
from meshcast.recorded.operators import HostTrace, Operator
from meshcast.recorded.streams import PlacedWork, placed_work, waited_for
from meshcast.recorded.threads import ThreadSegment, segments_of

PAUSE, REST, DELAY = "host pause", "(rest)", "delay"
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
    drafts: list[Draft] = field(repr=False)
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
        correlated = {work.correlation for work in device.work if work.correlation >= 0}
        calls = {
            event.correlation: place
            for place, event in enumerate(device.host)
            if event.kind == "call" and event.correlation in correlated
        }
        self._work = placed_work(device, calls, self._window)
        self._launched = {each.call: index for index, each in enumerate(self._work) if each.call is not None}
        self._waits = waited_for(device, self._work, self._launched)
        self._parents: dict[int, int | None] = {}
        self._unknown = 0

    def _spanned(self, step: int | None) -> tuple[int, int]:
        """From when to when what the host begins is linked."""
        events, steps = self._device.host, self._device.steps
        if step is not None:
            if step not in steps:
                have = f"steps are {min(steps)} to {max(steps)}" if steps else "it has no steps: call profiler.step()"
                raise InputError(f"no step {step}", where=self._device.where, fix=have)
            return steps[step]
        if self._operators:
            spans = [events[place] for place in self._operators]
            return min(event.start for event in spans), max(event.end for event in spans) + 1
        first = min([event.start for event in events] + [work.start for work in self._device.work])
        last = max([event.end for event in events] + [work.end for work in self._device.work])
        return first, last + 1

    def linked(self) -> LinkedRank:
        """All of it."""
        threads = segments_of(self._device.host, self._has_segment, self._window)
        numbers = {thread: index for index, thread in enumerate(sorted(threads, key=str))}
        by_segment: dict[int, Draft] = {}
        first_of: dict[int, ThreadSegment] = {}
        drafts: list[Draft] = []
        for thread, row in threads.items():
            for segment in row:
                draft = self._host_draft(segment, thread if isinstance(thread, int) else numbers[thread])
                by_segment[id(segment)] = draft
                drafts.append(draft)
                if segment.first and segment.event is not None:
                    first_of[segment.event] = segment
                    self._parents[segment.event] = segment.parent
        of_event = {event: by_segment[id(segment)] for event, segment in first_of.items()}
        works = [self._device_draft(each, of_event) for each in self._work]
        for each, draft in zip(self._work, works, strict=True):
            drafts += self._behind(each, draft, works, first_of, by_segment)
        for row in threads.values():
            for segment in row:
                self._hold_back(segment, by_segment, works)
                if segment.event is not None and (parent := self._parents.get(segment.event)) is not None:
                    by_segment[id(segment)].parent = of_event[parent]
        ends = [segment.end for row in threads.values() for segment in row[-1:]] + [each.end for each in self._work]
        return LinkedRank(
            where=self._device.where, drafts=ordered(drafts), start=self._window[0],
            end=max(ends, default=self._window[1]), rank=self._device.rank, world=self._device.world,
            device_name=self._device.device_name, notes=self._said(),
            operators=(0 if self._host is None else self._asked(), len(self._operators)),
            work=(len(self._work), sum(each.call is not None for each in self._work)),
            groups={} if self._host is None else self._host.groups,
        )  # fmt: skip

    def _asked(self) -> int:
        """Operators of the execution trace that something ran for."""
        assert self._host is not None
        return sum(not each.is_root and each.record > 0 for each in self._host.operators.values())

    def _has_segment(self, place: int) -> bool:
        event = self._device.host[place]
        return event.kind == "op" or place in self._launched or place in self._waits

    def _host_draft(self, segment: ThreadSegment, lane: int) -> Draft:
        event = None if segment.event is None else self._device.host[segment.event]
        name = PAUSE if event is None else event.name if segment.first else f"{event.name} {REST}"
        return Draft(
            name=name, kind=NodeType.COMPUTE, start=segment.start, duration=segment.end - segment.start, host=True, lane=lane,
            operator=self._operators.get(segment.event) if segment.event is not None and segment.first else None,
            external=-1 if event is None else event.external, pause=event is None,
        )  # fmt: skip

    def _device_draft(self, placed: PlacedWork, of_event: Mapping[int, Draft]) -> Draft:
        work = placed.work
        chain = list(self._callers(placed.call))
        # The operator, not the call: a copy that blocks its call ends before that.
        parent = next((of_event[place] for place in chain if self._device.host[place].kind == "op"), None)
        operator = next((self._operators[place] for place in chain if place in self._operators), None)
        said = self._communication(placed, chain) if COMMUNICATION_KERNEL.search(work.name) else None
        kind = NodeType.COMPUTE
        if said is not None:
            kind = NodeType.COLLECTIVE if said.code is not None else NodeType.SEND if said.sends else NodeType.RECEIVE
        return Draft(
            name=work.name, kind=kind, start=placed.start, duration=placed.end - placed.start, host=False, lane=work.stream,
            parent=parent, communication=said, operator=operator, external=work.external, moved=work.bytes,
        )  # fmt: skip

    def _callers(self, call: int | None) -> Iterator[int]:
        """A call and the events around it, innermost first."""
        place = call
        while place is not None:
            yield place
            place = self._parents.get(place)

    def _communication(self, placed: PlacedWork, chain: list[int]) -> Exchange | None:
        """What a kernel exchanges; None where nothing says, and it is replayed as what it took."""
        found = of_profiler(placed.work.said)
        for place in chain:
            if found is not None:
                return found
            event, operator = self._device.host[place], self._operators.get(place)
            found = of_profiler(event.said)
            if found is None and operator is not None and RECORD in operator.name:
                found = of_operator(operator)
        found = found or self._named(chain) or of_kernel(placed.work.name)
        if found is None or not (found.size or found.code is not None):
            self._unknown += 1
        return found

    def _named(self, chain: list[int]) -> Exchange | None:
        """The collective that an annotation around the launch names, as `nccl:all_to_all`."""
        names = [self._device.host[place].name for place in chain]
        return next((of_kernel(name) for name in names if name.startswith("nccl:")), None)

    def _behind(
        self, placed: PlacedWork, draft: Draft, works: list[Draft], first_of: Mapping[int, ThreadSegment],
        by_segment: Mapping[int, Draft],
    ) -> list[Draft]:  # fmt: skip
        """The draft of a piece of work with what it waits for, behind a delay where nothing explains all of its wait."""
        ready = self._window[0]
        deps: list[Draft] = []
        if placed.call is not None and placed.call in first_of:
            segment = first_of[placed.call]
            early = placed.start < segment.end or self._launched[placed.call] in self._waits.get(placed.call, ())
            launching = segment.before if early else segment
            ready = segment.start if early else segment.end
            if launching is not None:
                deps.append(by_segment[id(launching)])
        for other in [*([] if placed.before is None else [placed.before]), *placed.after]:
            deps.append(works[other])
            ready = max(ready, self._work[other].end)
        delay = placed.start - ready
        if delay < SHORTEST_DELAY:
            draft.deps = deps
            return [draft]
        pause = Draft(
            name=DELAY, kind=NodeType.COMPUTE, start=ready, duration=delay, host=False, lane=draft.lane, deps=deps,
            waits=True,
        )  # fmt: skip
        draft.deps = [pause]
        return [pause, draft]

    def _hold_back(self, segment: ThreadSegment, by_segment: Mapping[int, Draft], works: list[Draft]) -> None:
        """What a segment waits for, of which its own time does not count."""
        draft = by_segment[id(segment)]
        if segment.before is not None:
            draft.deps.append(by_segment[id(segment.before)])
        behind = segment.start
        if segment.waits_for is not None:
            draft.deps.append(by_segment[id(segment.waits_for)])
            behind = max(behind, segment.waits_for.end)
        if segment.event is not None and segment.first:
            for place in self._waits.get(segment.event, ()):
                draft.deps.append(works[place])
                behind = max(behind, self._work[place].end)
        draft.start = min(behind, segment.end)
        draft.duration = segment.end - draft.start

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
        orphans = sum(each.call is None for each in self._work)
        if orphans:
            found.append(f"{orphans} pieces of device work have no call that launched them in the file")
        return found
