"""Streams of the device: what each piece of work waited for, and how much of its delay nothing explains.

    ready(x)  = max(its launch, the end of what its stream ran before, the ends of what its stream was told to wait for)
    delay(x)  = start(x) - ready(x)

A kernel may begin before the call that launches it has returned: it then waits for the call's beginning. Newer profilers say
which stream waits for which (`cuda_sync`); of older ones only the call is known (`cudaStreamWaitEvent`), and the work behind it
on the same thread is taken to have waited for the last work of each other stream that had been launched then and was done in
time.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshcast.recorded.events import DeviceTrace, DeviceWork, HostEvent

TOLERANCE = 1_000  # ns: whole microseconds of older files
WAIT_EVENT = ("cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent")
STREAM_SYNC = ("cudaStreamSynchronize", "cudaEventSynchronize", "hipStreamSynchronize", "hipEventSynchronize")
DEVICE_SYNC = ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize")
BLOCKING_COPIES = ("DtoH", "Pageable")  # in the name of a copy: the call returns when it is done


@dataclass(slots=True, kw_only=True)
class PlacedWork:
    """Work of the device in its place.

    Attributes:
        work: What ran.
        call: The place of the call that launched it among the host's events; None where that lies before the window.
        before: The work in front of it on its stream, by its place among all placed; so `after` what it was told to wait for.
        start: When it began; where it overlaps what its stream ran before, when that ended.
    """

    work: DeviceWork
    call: int | None
    before: int | None = None
    after: list[int] = field(default_factory=list)
    start: int = 0
    end: int = 0


def placed_work(trace: DeviceTrace, calls: Mapping[int, int], window: tuple[int, int]) -> list[PlacedWork]:
    """The work that was launched in a window, in the order of its starts, with what it waited for.

    Args:
        trace: The device's trace.
        calls: The places of the calls that launched something, by correlation.
        window: From when to when launches count; work without a call counts by its own start.
    """
    found: list[PlacedWork] = []
    last: dict[int, int] = {}
    for work in trace.work:
        call = calls.get(work.correlation)
        launched = work.start if call is None else trace.host[call].start
        if not window[0] <= launched < window[1]:
            continue
        before = last.get(work.stream)
        start = work.start if before is None else max(work.start, found[before].end)
        found.append(PlacedWork(work=work, call=call, before=before, start=start, end=max(work.end, start)))
        last[work.stream] = len(found) - 1
    _explain(trace, found)
    return found


def _explain(trace: DeviceTrace, found: Sequence[PlacedWork]) -> None:
    """What streams were told to wait for."""
    waiting: defaultdict[int | str, list[tuple[int, HostEvent]]] = defaultdict(list)  # calls of each thread
    for event in trace.host:
        if event.kind == "call" and event.name in WAIT_EVENT:
            waiting[event.thread].append((event.start, event))
    if not waiting:
        return
    launched: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # by stream: when, and the place of the work
    for place, each in enumerate(found):
        if each.call is not None:
            launched[each.work.stream].append((trace.host[each.call].start, place))
    for row in launched.values():
        row.sort()
    # Work in the order of its launches on each thread: a wait holds for what comes next.
    threads: defaultdict[int | str, list[tuple[int, int]]] = defaultdict(list)
    for place, each in enumerate(found):
        if each.call is not None:
            threads[trace.host[each.call].thread].append((trace.host[each.call].start, place))
    for thread, row in threads.items():
        calls = waiting.get(thread, [])
        at = 0
        for when, place in sorted(row):
            told = []
            while at < len(calls) and calls[at][0] <= when:
                told.append(calls[at][1])
                at += 1
            for event in told:
                _wait(trace, found, launched, place, event)


def _wait(
    trace: DeviceTrace,
    found: Sequence[PlacedWork],
    launched: Mapping[int, list[tuple[int, int]]],
    place: int,
    event: HostEvent,
) -> None:
    """One call that made a stream wait, before a piece of work was launched."""
    said = trace.waits.get(event.correlation)
    mine = found[place]
    for stream, row in launched.items():
        if stream == mine.work.stream or (said is not None and stream != said.on_stream):
            continue
        at = bisect.bisect_left(row, (event.start, -1)) - 1
        if at < 0:
            continue
        other = row[at][1]
        if found[other].end <= mine.start + TOLERANCE and other != place and other not in mine.after:
            mine.after.append(other)


def waited_for(trace: DeviceTrace, found: Sequence[PlacedWork], by_call: Mapping[int, int]) -> dict[int, list[int]]:
    """The work that calls of the host waited for, by the place of the call.

    Args:
        trace: The device's trace.
        found: Its work, as `placed_work` gives it.
        by_call: The place of the work that a call launched.
    """
    launches = sorted((trace.host[each.call].start, place) for place, each in enumerate(found) if each.call is not None)
    times = [when for when, _ in launches]
    waits: dict[int, list[int]] = {}
    # Of what has been launched: the last work of each stream, as calls come by.
    latest: dict[int, int] = {}
    at = 0
    for place, event in enumerate(trace.host):
        if event.kind != "call":
            continue
        if event.name in STREAM_SYNC or event.name in DEVICE_SYNC:
            until = bisect.bisect_left(times, event.start)
            while at < until:
                latest[found[launches[at][1]].work.stream] = launches[at][1]
                at += 1
            said = trace.waits.get(event.correlation)
            known = said.on_stream if said is not None and event.name in STREAM_SYNC else None
            inside = [
                each
                for stream, each in latest.items()
                if (known is None or stream == known) and found[each].end <= event.end + TOLERANCE
                and (known is not None or event.name in DEVICE_SYNC or found[each].end > event.start)
            ]  # fmt: skip
            if inside:
                waits[place] = inside
        elif place in by_call:
            work = found[by_call[place]]
            blocking = work.work.kind == "gpu_memcpy" and any(each in work.work.name for each in BLOCKING_COPIES)
            if blocking and work.end <= event.end + TOLERANCE:
                waits[place] = [by_call[place]]
    return waits
