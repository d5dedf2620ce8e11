"""The critical path: the chain of kernels, collectives and loops of which each begins when the one before it ends.

Nothing on it could have started earlier, so its parts add up to the duration, and only what is on it can shorten the
step. It is found backwards, from what ends last: a step's start is the end of a step that it waits for, or of its
stream's previous one. A loop is on it as a whole, with the path of one turn times its trips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from meshcast.lower.kernel import Kernel, LoopStep

if TYPE_CHECKING:
    from meshcast.simulate.issue_order import BlockPlan
    from meshcast.simulate.placement import Placed
    from meshcast.simulate.timeline import Timeline

SegmentKind = Literal["compute", "memory", "communication", "copy", "idle"]
KERNELS = ("compute", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Neighbours on the critical path of one kind: all of their turns together.

    Attributes:
        kind: What they spend the time on. Kernels' gaps and fixed costs are theirs.
        what: Their name, of several kernels that of the longest; of a collective its kind and group.
        seconds: Of all of them, in all turns.
        count: How many there are, in all turns.
        loops: The loops around them from the outermost, as "label x trips".
        longest: Seconds of the one that `what` names, once.
    """

    kind: SegmentKind
    what: str
    seconds: float
    count: int = 1
    loops: tuple[str, ...] = ()
    longest: float = 0.0

    def inside(self, loop: str, trips: int) -> Segment:
        """The same in every turn of a loop."""
        return replace(self, seconds=trips * self.seconds, count=trips * self.count, loops=(loop, *self.loops))


def critical_path(
    block: BlockPlan, placed: Placed, inner: Mapping[int, Timeline], is_memory: Callable[[Kernel], bool]
) -> tuple[Segment, ...]:
    """The critical path of a block, in the order of time.

    Args:
        block: The block.
        placed: When its steps run.
        inner: The timelines of one turn of its loops and branches, by step.
        is_memory: Whether memory limits a compute kernel.
    """
    segments: list[Segment] = []
    for index, seconds in _chain(block, placed):
        if index is None:
            segments.append(Segment(kind="copy", what="waiting for copies", seconds=seconds))
            continue
        step = block.steps[index]
        if isinstance(step, Kernel):
            segments.append(_segment(step, seconds, is_memory))
        elif isinstance(step, LoopStep):
            segments += [s.inside(f"{step.label} x {step.trips}", step.trips) for s in inner[index].critical]
        else:
            segments += inner[index].critical
    return _joined(segments)


def _segment(kernel: Kernel, seconds: float, is_memory: Callable[[Kernel], bool]) -> Segment:
    if kernel.collective is not None:
        what = f"{kernel.collective.kind.replace('_', '-')} over {kernel.collective.group}"
        return Segment(kind="communication", what=what, seconds=seconds, longest=seconds)
    kind: SegmentKind = "memory" if is_memory(kernel) else "compute"
    return Segment(kind=kind, what=kernel.name, seconds=seconds, longest=seconds)


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


def _joined(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Neighbours of one kind in the same loops as one; collectives only with their like."""
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        if (
            last is not None
            and (last.kind, last.loops) == (segment.kind, segment.loops)
            and (segment.kind in KERNELS or last.what == segment.what)
        ):
            longer = segment if segment.longest > last.longest else last
            joined[-1] = replace(longer, seconds=last.seconds + segment.seconds, count=last.count + segment.count)
        else:
            joined.append(segment)
    return tuple(joined)


def shortened(path: Sequence[Segment], seconds: float) -> tuple[Segment, ...]:
    """The path with so much less at its end: the gap that nothing waits for."""
    kept = list(path)
    while kept and seconds > 0:
        last = kept.pop()
        if last.seconds > seconds:
            kept.append(replace(last, seconds=last.seconds - seconds))
        seconds -= last.seconds
    return tuple(kept)
