"""`Slice`: something that runs on a track of a rank, as timelines draw it; `RankTimeline`: all of one kind of rank.

Slices come from the simulation itself, not from a replay: their times are those that the prediction adds up. Nested ones (turns
of a loop, tasks of a pipeline) have tracks of their own, so that what runs on a stream never overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from meshcast.base import Group
from meshcast.jobs import Ints

SliceFact = str | int | float
Category = Literal["kernel", "collective", "copy", "send", "receive", "task", "loop"]
COMPUTE_TRACK, COPY_TRACK, LOOP_TRACK, TASK_TRACK = "compute", "copies", "loops", "tasks"
MARKS = frozenset({"task", "loop"})  # say what others are part of: nothing runs there


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovedBytes:
    """What a collective or message moves.

    Attributes:
        kind: The kind of the collective, or `send` and `receive`.
        dtype: The dtype of its elements; nothing where that is not known.
        input_bytes: What a rank has before.
        output_bytes: What it has after.
        group: The group of the devices of one program; None for a message.
        devices: The devices of that program: rank r is its device `r % devices`.
        peer: Ranks from a rank to the other side of a message.
    """

    kind: str
    dtype: str
    input_bytes: int
    output_bytes: int
    group: Group | None = None
    devices: int = 1
    peer: int = 0

    def members(self, rank: int) -> tuple[int, ...]:
        """Ranks that take part with this one, itself among them; none where it does not."""
        if self.group is None:
            return tuple(sorted((rank, rank + self.peer)))
        first = rank - rank % self.devices
        for row in self.group.rows():
            # Groups of a stage that lies elsewhere are timed at their own places: what counts is who is with whom.
            found = row % self.devices
            if rank % self.devices in found:
                return tuple(int(first + device) for device in sorted(found))
        return ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Description:
    """What a slice says about itself; equal launches share it.

    Attributes:
        name: What to call it.
        category: What it is to a reader of timelines.
        facts: Whatever else there is to say: work, bytes, bound, origin of the estimate, place in the source.
        joules: Above idle, of one launch.
        sent: Bytes that a device sends over each level of the network.
        exchange: What it moves between ranks, if it does.
    """

    name: str
    category: Category
    facts: Mapping[str, SliceFact] = field(default_factory=dict)
    joules: float = 0.0
    sent: Mapping[str, float] = field(default_factory=dict)
    exchange: MovedBytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice:
    """Something on a track, in seconds from the start of the step.

    Attributes:
        what: The description of what runs.
        track: Where it runs.
        start: When it starts.
        end: When it ends.
        turns: Launches that it stands for: of a loop that is kept folded, one turn stands for all of them.
        leads_to: Numbers of arrows that start here.
        follows: Numbers of arrows that end here.
    """

    what: Description
    track: str
    start: float
    end: float
    turns: int = 1
    leads_to: tuple[int, ...] = ()
    follows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """A value that changes over time: (seconds, new value), in order of time."""

    name: str
    unit: str
    steps: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankTimeline:
    """Ranks that do the same.

    Attributes:
        ranks: Which.
        label: What is special about them; nothing where all ranks are one kind.
        slices: The slices of any of its ranks, on each track in order of time; asked for again for every reader.
        memory: What is held over time, by what it is for.
        idle_watts: That the device draws when nothing runs.
        most_watts: That its power cap allows.
    """

    ranks: Ints
    label: str
    slices: Callable[[int], Iterator[Slice]]
    memory: Callable[[], tuple[Level, ...]]
    idle_watts: float
    most_watts: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobTimeline:
    """A step of all ranks, those that are alike once.

    Attributes:
        name: The name of the program.
        ranks: How many.
        kinds: The kinds of ranks.
        step_s: Seconds of the step.
        facts: About the prediction as a whole.
        slices: How many there are on one rank of each kind, together.
        folded: Whether one turn of a loop stands for all of them.
    """

    name: str
    ranks: int
    kinds: tuple[RankTimeline, ...]
    step_s: float
    facts: Mapping[str, SliceFact]
    slices: int
    folded: bool


def laned(slices: Iterable[Slice]) -> list[Slice]:
    """Slices in order of their starts, with copies that are under way at once on tracks of their own."""
    ends: list[float] = []
    found: list[Slice] = []
    for each in sorted(slices, key=lambda one: (one.start, -one.end)):
        if each.track == COPY_TRACK:
            lane = next((lane for lane, end in enumerate(ends) if end <= each.start), len(ends))
            ends[lane : lane + 1] = [each.end]
            each = replace(each, track=f"{COPY_TRACK} {lane + 1}") if lane else each
        found.append(each)
    return found
