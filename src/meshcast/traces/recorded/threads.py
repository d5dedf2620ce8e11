"""Threads of the host as a row of segments without holes: what ran when, innermost first, and pauses between.

An operator that calls others is interrupted by them: its first segment is the operator itself, later ones are the rest of it.
What no event covers is a pause (Python, the interpreter, waiting). Segments of a thread add up to its time, so that a replay
ends when the thread did. A pause of another thread's making is a wait: one that is longer than the host's own pauses, and in
which another thread ended something, is taken to have waited for that.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from meshcast.traces.recorded.columns import FLAG, LONG, NONE, SHORT, ColumnTable
from meshcast.traces.recorded.events import HostEvents

# Nanoseconds. Kineto's older files have whole microseconds: shorter rests are rounding, and go to what ran before.
SHORTEST_REST = 1_000
# A pause of the host's own between two operators takes microseconds to tens of them; Chakra's linker takes 1 ms for a wait.
LONG_PAUSE = 100_000


class ThreadSegments(ColumnTable):
    """Parts of threads' times, those of a thread behind each other.

    Columns:
        event: The place of the event that ran among all events; -1 of a pause.
        first: 1 where the event begins here.
        parent: The place of the event around its own; -1 where there is none.

    Attributes:
        rows: Where the segments of a thread lie, by its number.
        waits_for: The segment of another thread that one waited for.
    """

    CODES: ClassVar[Mapping[str, str]] = {"start": LONG, "end": LONG, "event": SHORT, "first": FLAG, "parent": SHORT}
    start: array[int]
    end: array[int]
    event: array[int]
    first: array[int]
    parent: array[int]

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, range] = {}
        self.waits_for: dict[int, int] = {}


def segments_of(events: HostEvents, kept: Callable[[int], bool], window: tuple[int, int]) -> ThreadSegments:
    """Segments of every thread in a window of time, from its start on.

    Args:
        events: All events of the host, by start.
        kept: Whether an event has a segment of its own, by its place; what has none is a part of what is around it.
        window: From when to when events begin.
    """
    by_thread: dict[int, array[int]] = {}
    for place, start in enumerate(events.start):
        if window[0] <= start < window[1] and kept(place):
            by_thread.setdefault(events.thread[place], array(SHORT)).append(place)
    found = ThreadSegments()
    for thread, places in by_thread.items():
        begin = len(found)
        _add_tiled(found, events, places, window[0])
        found.rows[thread] = range(begin, len(found))
    _find_waits(found)
    return found


def _add_tiled(found: ThreadSegments, events: HostEvents, places: Sequence[int], begin: int) -> None:
    """Adds the segments of one thread."""
    open_events: list[tuple[int, int]] = []  # place, and where it ends
    now = begin
    row = len(found)  # where those of this thread begin
    ends, covered = found.end, found.event

    def close(until: int) -> None:
        """What is running now runs until then."""
        nonlocal now
        if until <= now:
            return
        event = open_events[-1][0] if open_events else NONE
        behind = len(found) > row
        goes_on = behind and ends[-1] == now and covered[-1] == event and event != NONE
        if goes_on or (behind and until - now < SHORTEST_REST):
            ends[-1] = until
        else:
            found.add(now, until, event, 0, _around())
        now = until

    def _around() -> int:
        return open_events[-2][0] if len(open_events) > 1 else NONE

    for place in places:
        start = max(events.start[place], now)  # what was recorded as overlapping cannot be nested: it begins behind
        while open_events and open_events[-1][1] <= start:
            close(open_events[-1][1])
            open_events.pop()
        close(start)
        end = max(events.end[place], start)
        open_events.append((place, min(end, open_events[-1][1]) if open_events else end))
        found.add(start, start, place, 1, _around())
    while open_events:
        close(open_events[-1][1])
        open_events.pop()


def _find_waits(found: ThreadSegments) -> None:
    """Long pauses that another thread ended."""
    working = {
        thread: array(SHORT, (place for place in row if found.event[place] != NONE))
        for thread, row in found.rows.items()
    }
    ends = {thread: array(LONG, (found.end[place] for place in row)) for thread, row in working.items()}
    for thread, row in found.rows.items():
        for pause in row:
            begin, end = found.start[pause], found.end[pause]
            if found.event[pause] != NONE or end - begin < LONG_PAUSE:
                continue
            latest = NONE
            for other, their_ends in ends.items():
                place = bisect.bisect_right(their_ends, end) - 1
                if other == thread or place < 0:
                    continue
                candidate = working[other][place]
                if found.end[candidate] > begin and (latest == NONE or found.end[candidate] > found.end[latest]):
                    latest = candidate
            if latest != NONE:
                found.waits_for[pause] = latest
