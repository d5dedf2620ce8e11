"""Threads of the host as a row of segments without holes: what ran when, innermost first, and pauses between.

An operator that calls others is interrupted by them: its first segment is the operator itself, later ones are the rest of it.
What no event covers is a pause (Python, the interpreter, waiting). Segments of a thread add up to its time, so that a replay
ends when the thread did. A pause of another thread's making is a wait: one that is longer than the host's own pauses, and in
which another thread ended something, is taken to have waited for that.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meshcast.recorded.events import HostEvent

# Nanoseconds. Kineto's older files have whole microseconds: shorter rests are rounding, and go to what ran before.
SHORTEST_REST = 1_000
# A pause of the host's own between two operators takes microseconds to tens of them; Chakra's linker takes 1 ms for a wait.
LONG_PAUSE = 100_000


@dataclass(slots=True, kw_only=True)
class ThreadSegment:
    """A part of a thread's time.

    Attributes:
        event: The place of the event that ran among all events; None of a pause.
        first: Whether the event begins here.
        before: The segment of its thread in front of it.
        waits_for: A segment of another thread that it waited for.
        parent: The place of the event around its own.
    """

    thread: int | str
    start: int
    end: int
    event: int | None
    first: bool = True
    before: ThreadSegment | None = field(default=None, repr=False)
    waits_for: ThreadSegment | None = field(default=None, repr=False)
    parent: int | None = None


def segments_of(
    events: Sequence[HostEvent], kept: Callable[[int], bool], window: tuple[int, int]
) -> dict[int | str, list[ThreadSegment]]:
    """Segments of every thread in a window of time, from its start on, by thread.

    Args:
        events: All events of the host, by start.
        kept: Whether an event has a segment of its own, by its place; what has none is a part of what is around it.
        window: From when to when events begin.
    """
    by_thread: defaultdict[int | str, list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        if window[0] <= event.start < window[1] and kept(place):
            by_thread[event.thread].append(place)
    found = {thread: _tiled(events, places, window[0]) for thread, places in by_thread.items()}
    _find_waits(found)
    return found


def _tiled(events: Sequence[HostEvent], places: Sequence[int], begin: int) -> list[ThreadSegment]:
    """The segments of one thread."""
    row: list[ThreadSegment] = []
    open_events: list[tuple[int, int]] = []  # place, and where it ends
    now = begin
    thread = events[places[0]].thread

    def close(until: int) -> None:
        """What is running now runs until then."""
        nonlocal now
        if until <= now:
            return
        event = open_events[-1][0] if open_events else None
        goes_on = bool(row) and row[-1].end == now and row[-1].event == event and event is not None
        if goes_on or (row and until - now < SHORTEST_REST):
            row[-1].end = until
        else:
            row.append(_segment(event, now, until, first=False))
        now = until

    def _segment(event: int | None, start: int, end: int, *, first: bool) -> ThreadSegment:
        parent = open_events[-2][0] if len(open_events) > 1 else None
        return ThreadSegment(
            thread=thread,
            start=start,
            end=end,
            event=event,
            first=first,
            before=row[-1] if row else None,
            parent=parent,
        )

    for place in places:
        event = events[place]
        start = max(event.start, now)  # what was recorded as overlapping cannot be nested: it begins behind
        while open_events and open_events[-1][1] <= start:
            close(open_events[-1][1])
            open_events.pop()
        close(start)
        end = max(event.end, start)
        open_events.append((place, min(end, open_events[-1][1]) if open_events else end))
        row.append(_segment(place, start, start, first=True))
    while open_events:
        close(open_events[-1][1])
        open_events.pop()
    return row


def _find_waits(threads: dict[int | str, list[ThreadSegment]]) -> None:
    """Long pauses that another thread ended."""
    working = {thread: [each for each in row if each.event is not None] for thread, row in threads.items()}
    ends = {thread: [each.end for each in row] for thread, row in working.items()}
    for thread, row in threads.items():
        for pause in row:
            if pause.event is not None or pause.end - pause.start < LONG_PAUSE:
                continue
            latest: ThreadSegment | None = None
            for other, their_ends in ends.items():
                place = bisect.bisect_right(their_ends, pause.end) - 1
                if other == thread or place < 0:
                    continue
                candidate = working[other][place]
                if candidate.end > pause.start and (latest is None or candidate.end > latest.end):
                    latest = candidate
            pause.waits_for = latest
