"""The critical path: the chain of kernels, collectives and loops of which each begins when the one before it ends.

Nothing on it could have started earlier, so its parts add up to the duration, and only what is on it can shorten the
step. It is found backwards, from what ends last: a step's start is the end of a step that it waits for, or of its
stream's previous one. A loop is on it as a whole, with the path of one turn times its trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from meshcast.base import copier
from meshcast.lower import Kernel, LoopStep

if TYPE_CHECKING:
    from meshcast.simulate.block_times import Placed
    from meshcast.simulate.issue_order import BlockPlan
    from meshcast.simulate.timeline import Timeline

SegmentKind = Literal["compute", "memory", "communication", "copy", "idle"]
KERNELS = ("compute", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Neighbours on the critical path of one kind: all of their turns together.

    Attributes:
        kind: What they spend the time on. Kernels' gaps and fixed costs are theirs.
        what: Their name, of several kernels that of the longest; of a collective its kind and group.
        seconds: The seconds of all of them, in all turns.
        count: How many there are, in all turns.
        loops: The loops around them from the outermost, as "label x trips".
    """

    kind: SegmentKind
    what: str
    seconds: float
    count: int = 1
    loops: tuple[str, ...] = ()


_repeated = copier(Segment, "seconds", "count", "loops")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looped:
    """The path of one turn of a loop, or of a branch, whose name is empty: kept apart until the whole path is asked for."""

    loop: str
    trips: int
    path: tuple[Segment | Looped, ...]


def flattened(path: Sequence[Segment | Looped]) -> tuple[Segment, ...]:
    """The segments of a path with all turns of the loops around them."""
    found: list[Segment] = []
    names: tuple[str, ...] = ()
    around: list[tuple[Iterator[Segment | Looped], int, tuple[str, ...]]] = [(iter(path), 1, names)]
    while around:
        items, _, names = around[-1]
        item = next(items, None)
        if item is None:
            around.pop()
        elif isinstance(item, Looped):
            inside = (*names, f"{item.loop} x {item.trips}") if item.loop else names
            around.append((iter(item.path), item.trips, inside))
        else:
            seconds, count = item.seconds, item.count
            for _, trips, _ in reversed(around):
                seconds, count = trips * seconds, trips * count
            found.append(_repeated(item, seconds, count, names) if len(around) > 1 else item)
    return tuple(found)


def critical_path(
    block: BlockPlan, placed: Placed, inner: Mapping[int, Timeline], is_memory: Callable[[Kernel], bool]
) -> tuple[Segment | Looped, ...]:
    """The critical path of a block, in the order of time; those of its loops and branches kept folded.

    Args:
        block: The block.
        placed: When its steps run.
        inner: The timelines of one turn of its loops and branches, by step.
        is_memory: Whether memory limits a compute kernel.
    """
    path = _Path()
    for index, seconds in _chain(block, placed):
        if index is None:
            path.add("copy", "waiting for copies", seconds)
            continue
        step = block.steps[index]
        if not isinstance(step, Kernel):
            loop, trips = (step.label, step.trips) if isinstance(step, LoopStep) else ("", 1)
            path.append(Looped(loop=loop, trips=trips, path=inner[index].path))
        elif step.collective is not None:
            path.add("communication", f"{step.collective.kind.replace('_', '-')} over {step.collective.group}", seconds)
        else:
            path.add("memory" if is_memory(step) else "compute", step.name, seconds)
    return path.segments()


class _Path:
    """Segments as they come; neighbours of one kind in the same loops become one, collectives only with their like."""

    def __init__(self) -> None:
        self._done: list[Segment | Looped] = []
        self._kind: SegmentKind = "idle"
        self._what = ""
        self._seconds = self._longest = 0.0
        self._count = 0

    def add(self, kind: SegmentKind, what: str, seconds: float) -> None:
        """One step of this block."""
        if kind != self._kind or (kind not in KERNELS and what != self._what):
            self._close()
            self._kind, self._what = kind, what
        if seconds > self._longest:
            self._longest, self._what = seconds, what
        self._seconds += seconds
        self._count += 1

    def append(self, path: Looped) -> None:
        """A loop or a branch."""
        self._close()
        self._done.append(path)

    def segments(self) -> tuple[Segment | Looped, ...]:
        """All of them."""
        self._close()
        return tuple(self._done)

    def _close(self) -> None:
        if self._count:
            self._done.append(Segment(kind=self._kind, what=self._what, seconds=self._seconds, count=self._count))
        self._seconds, self._longest, self._count = 0.0, 0.0, 0


def _chain(block: BlockPlan, placed: Placed) -> list[tuple[int | None, float]]:
    """Steps of the path with their seconds, the first one first; None for time that copies beside compute take."""
    starts, ends, order = placed.starts, placed.ends, placed.order
    if not order:
        return []
    if not block.concurrent:
        return [(index, ends[index] - starts[index]) for index in order if ends[index] > starts[index]]
    position = {index: place for place, index in enumerate(order)}
    by_end: dict[float, list[int]] = {}
    for index in order:
        by_end.setdefault(ends[index], []).append(index)
    path: list[tuple[int | None, float]] = []
    now, before = placed.length.all, len(order)
    current: int | None = None
    while now > 0:
        found = [index for index in by_end.get(now, ()) if position[index] < before]
        if found:
            waits = set(block.before[current]) if current is not None else set()
            lane = block.lanes[current] if current is not None else 0
            # What it waits for first, then its own stream's previous step, then a loop that held all streams.
            index = max(found, key=lambda i: (i in waits, block.lanes[i] == lane, ends[i] > starts[i], position[i]))
            if ends[index] > starts[index]:
                path.append((index, ends[index] - starts[index]))
            now, before, current = starts[index], position[index], index
        else:
            earlier = max((ends[index] for index in order[:before] if ends[index] < now), default=0.0)
            path.append((None, now - earlier))
            now = earlier
    path.reverse()
    return path


def shortened(path: Sequence[Segment], seconds: float) -> tuple[Segment, ...]:
    """The path with so much less at its end: the gap that nothing waits for."""
    kept = list(path)
    while kept and seconds > 0:
        last = kept.pop()
        if last.seconds > seconds:
            kept.append(replace(last, seconds=last.seconds - seconds))
        seconds -= last.seconds
    return tuple(kept)
