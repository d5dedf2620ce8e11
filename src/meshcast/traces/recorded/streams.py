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
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meshcast.traces.recorded.columns import LONG, NONE, SHORT, ColumnTable, Whole, as_numbers, column
from meshcast.traces.recorded.events import WORK, DeviceTrace

TOLERANCE = 1_000  # ns: whole microseconds of older files
WAIT_EVENT = ("cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent")
STREAM_SYNC = ("cudaStreamSynchronize", "cudaEventSynchronize", "hipStreamSynchronize", "hipEventSynchronize")
DEVICE_SYNC = ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize")
BLOCKING_COPIES = ("DtoH", "Pageable")  # in the name of a copy: the call returns when it is done


class PlacedWork(ColumnTable):
    """Work of the device in its place.

    Columns:
        work: What ran: its place in the trace.
        call: The place of the call that launched it among the host's events; -1 where that lies before the window.
        before: The work in front of it on its stream, by its place among all placed; -1 where there is none.
        start: When it began; where it overlaps what its stream ran before, when that ended.

    Attributes:
        after: What each was told to wait for.
    """

    CODES: ClassVar[Mapping[str, str]] = {"work": SHORT, "call": SHORT, "before": SHORT, "start": LONG, "end": LONG}
    work: array[int]
    call: array[int]
    before: array[int]
    start: array[int]
    end: array[int]

    def __init__(self) -> None:
        super().__init__()
        self.after: dict[int, list[int]] = {}


@dataclass(frozen=True, slots=True)
class _Launches:
    """Places of work in the order in which it was launched, and when."""

    when: array[int]
    place: array[int]


def placed_work(trace: DeviceTrace, calls: Mapping[int, int], window: tuple[int, int]) -> PlacedWork:
    """The work that was launched in a window, in the order of its starts, with what it waited for.

    Args:
        trace: The device's trace.
        calls: The places of the calls that launched something, by correlation.
        window: From when to when launches count; work without a call counts by its own start.
    """
    found = PlacedWork()
    work = trace.work
    last: dict[int, int] = {}
    for place in range(len(work)):
        call = calls.get(work.correlation[place], NONE)
        launched = work.start[place] if call == NONE else trace.host.start[call]
        if not window[0] <= launched < window[1]:
            continue
        before = last.get(work.stream[place], NONE)
        start = work.start[place] if before == NONE else max(work.start[place], found.end[before])
        last[work.stream[place]] = found.add(place, call, before, start, max(work.end[place], start))
    _explain(trace, found)
    return found


def _launches(trace: DeviceTrace, found: PlacedWork) -> tuple[_Launches, Whole]:
    """Work that has a call, in the order of the calls; and the calls."""
    calls = found.numbers("call")
    places = np.flatnonzero(calls != NONE)
    when = trace.host.numbers("start")[calls[places]]
    order = np.lexsort((places, when))
    return _Launches(column(LONG, when[order]), column(SHORT, places[order])), calls[places][order]


def _split(launches: _Launches, by: Whole) -> dict[int, _Launches]:
    """Launches by what each belongs to."""
    when, place = as_numbers(launches.when), as_numbers(launches.place)
    return {
        int(each): _Launches(column(LONG, when[by == each]), column(SHORT, place[by == each])) for each in np.unique(by)
    }


def _explain(trace: DeviceTrace, found: PlacedWork) -> None:
    """What streams were told to wait for."""
    host = trace.host
    names = {number for number, name in enumerate(host.names.all) if name in WAIT_EVENT}
    waiting: defaultdict[int, list[int]] = defaultdict(list)  # calls of each thread
    for place, name in enumerate(host.name):
        if name in names and not host.is_op[place]:
            waiting[host.thread[place]].append(place)
    if not waiting:
        return
    launches, calls = _launches(trace, found)
    launched = _split(launches, trace.work.numbers("stream")[found.numbers("work")][as_numbers(launches.place)])
    # Work in the order of its launches on each thread: a wait holds for what comes next.
    for thread, row in _split(launches, host.numbers("thread")[calls]).items():
        told = waiting.get(thread, [])
        at = 0
        for when, place in zip(row.when, row.place, strict=True):
            while at < len(told) and host.start[told[at]] <= when:
                _wait(trace, found, launched, place, told[at])
                at += 1


def _wait(trace: DeviceTrace, found: PlacedWork, launched: Mapping[int, _Launches], place: int, call: int) -> None:
    """One call that made a stream wait, before a piece of work was launched."""
    said = trace.waits.get(trace.host.correlation[call])
    mine = trace.work.stream[found.work[place]]
    for stream, row in launched.items():
        if stream == mine or (said is not None and stream != said.on_stream):
            continue
        at = bisect.bisect_left(row.when, trace.host.start[call]) - 1
        if at < 0:
            continue
        other = row.place[at]
        told = found.after.setdefault(place, [])
        if found.end[other] <= found.start[place] + TOLERANCE and other != place and other not in told:
            told.append(other)


def waited_for(trace: DeviceTrace, found: PlacedWork, by_call: Mapping[int, int]) -> dict[int, list[int]]:
    """The work that calls of the host waited for, by the place of the call.

    Args:
        trace: The device's trace.
        found: Its work, as `placed_work` gives it.
        by_call: The place of the work that a call launched.
    """
    host, work = trace.host, trace.work
    launches, _ = _launches(trace, found)
    waits: dict[int, list[int]] = {}
    # Of what has been launched: the last work of each stream, as calls come by.
    latest: dict[int, int] = {}
    at = 0
    syncs = [name in STREAM_SYNC or name in DEVICE_SYNC for name in host.names.all]
    for place, is_op in enumerate(host.is_op):
        if is_op:
            continue
        if syncs[host.name[place]]:
            start, end, name = host.start[place], host.end[place], host.name_of(place)
            until = bisect.bisect_left(launches.when, start)
            while at < until:
                latest[work.stream[found.work[launches.place[at]]]] = launches.place[at]
                at += 1
            said = trace.waits.get(host.correlation[place])
            known = said.on_stream if said is not None and name in STREAM_SYNC else None
            inside = [
                each
                for stream, each in latest.items()
                if (known is None or stream == known) and found.end[each] <= end + TOLERANCE
                and (known is not None or name in DEVICE_SYNC or found.end[each] > start)
            ]  # fmt: skip
            if inside:
                waits[place] = inside
        elif (launched := by_call.get(place)) is not None:
            each = found.work[launched]
            blocking = WORK[work.kind[each]] == "gpu_memcpy" and any(
                text in work.name_of(each) for text in BLOCKING_COPIES
            )
            if blocking and found.end[launched] <= host.end[place] + TOLERANCE:
                waits[place] = [launched]
    return waits
