"""Which event of the profiler is which operator of the execution trace.

Newer profilers write the number that the execution trace has (`Record function id` is its `rf_id`). Older ones do not, and both
files list the same operators of a thread in the order in which they began: names are laid beside each other. Runs of names that
occur in both vote for a shift between them, the shift with most votes is followed, and where a name is missing on one side the
two sides meet again at the nearest place where some names in a row agree.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence

from meshcast.traces.recorded.columns import SHORT
from meshcast.traces.recorded.events import HostEvents
from meshcast.traces.recorded.operators import GROUPS, HostTrace, Operator

RUN = 6  # names in a row that vote
AGREE = 3  # names in a row that have to agree where two sides meet again
FARTHEST = 400  # names that may be missing at a place


def matched(host: HostTrace, events: HostEvents) -> dict[int, Operator]:
    """The operator of every event that has one, by the event's place in `events`."""
    operators = [each for each in host.operators.values() if not each.is_root and GROUPS not in each.name]
    known = array(SHORT, (place for place, is_op in enumerate(events.is_op) if is_op))
    if any(events.record[place] >= 0 for place in known):
        by_record = {each.record: each for each in operators}
        return {
            place: found
            for place in known
            if (found := by_record.get(events.record[place])) is not None and found.name == events.name_of(place)
        }
    return _by_order(operators, events, known)


def _by_order(operators: Sequence[Operator], events: HostEvents, known: Sequence[int]) -> dict[int, Operator]:
    by_thread: defaultdict[int, list[Operator]] = defaultdict(list)
    for each in operators:
        by_thread[each.thread].append(each)
    lanes: defaultdict[int, array[int]] = defaultdict(lambda: array(SHORT))
    for place in known:
        lanes[events.thread[place]].append(place)
    names = {thread: [events.name_of(place) for place in lane] for thread, lane in lanes.items()}
    found: dict[int, Operator] = {}
    taken: set[int] = set()
    for ours in sorted(by_thread.values(), key=len, reverse=True):
        asked = [each.name for each in ours]
        votes = {thread: _best_shift(asked, names[thread]) for thread in names if thread not in taken}
        thread = max(votes, key=lambda each: votes[each][1], default=None)
        if thread is None or not votes[thread][1]:
            continue
        taken.add(thread)
        for left, right in _aligned(asked, names[thread], votes[thread][0]):
            found[lanes[thread][right]] = ours[left]
    return found


def _best_shift(asked: Sequence[str], names: Sequence[str]) -> tuple[int, int]:
    """The shift that most runs of names vote for, and how many do; of several the lowest."""
    run = min(RUN, len(asked), len(names))
    places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for at in range(len(names) - run + 1):
        places[tuple(names[at : at + run])].append(at)
    votes: Counter[int] = Counter()
    for at in range(len(asked) - run + 1):
        votes.update(place - at for place in places.get(tuple(asked[at : at + run]), ()))
    if not votes:
        return 0, 0
    most = max(votes.values())
    return min(shift for shift, count in votes.items() if count == most), most


def _aligned(asked: Sequence[str], names: Sequence[str], shift: int) -> list[tuple[int, int]]:
    """Places of equal names on both sides, in order, from a shift on."""
    left, right = max(0, -shift), max(0, shift)
    found = []
    while left < len(asked) and right < len(names):
        if asked[left] == names[right]:
            found.append((left, right))
            left, right = left + 1, right + 1
            continue
        met = _meeting(asked, names, left, right)
        if met is None:
            break
        left, right = met
    return found


def _meeting(asked: Sequence[str], names: Sequence[str], left: int, right: int) -> tuple[int, int] | None:
    """Where both sides agree again, with the fewest names left out."""
    for missing in range(1, FARTHEST):
        for skipped in range(missing + 1):
            a, b = left + skipped, right + missing - skipped
            count = min(AGREE, len(asked) - a, len(names) - b)
            if count > 0 and all(asked[a + each] == names[b + each] for each in range(count)):
                return a, b
    return None
