"""`Draft`: a node of a linked trace before it has a number; and drafts in order, each behind what it waits for."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshcast.base import BugError
from meshcast.chakra import NodeType
from meshcast.recorded.collectives import Exchange
from meshcast.recorded.operators import Operator


@dataclass(slots=True, kw_only=True, eq=False)
class Draft:
    """A node.

    Attributes:
        start: When what it stands for began, behind everything that it waited for; nanoseconds of the profiler's clock.
        duration: Nanoseconds of its own, without what it waited for.
        lane: The thread of the host or the stream of the device.
        deps: What it waits for.
        parent: What called it.
        waits: Whether it stands for a delay of the device that nothing in the trace explains; `pause` for one of the host.
        communication: What it exchanges, and with whom.
        operator: The operator of the execution trace that it is or that launched it.
        external: The profiler's number of its event.
        moved: Bytes of a copy or fill.
        number: Its number in the file.
    """

    name: str
    kind: NodeType
    start: int
    duration: int
    host: bool
    lane: int
    deps: list[Draft] = field(default_factory=list, repr=False)
    parent: Draft | None = field(default=None, repr=False)
    waits: bool = False
    pause: bool = False
    communication: Exchange | None = None
    operator: Operator | None = field(default=None, repr=False)
    external: int = -1
    moved: int = 0
    number: int = 0


def ordered(drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts by their starts, each behind all that it waits for; numbered from 1 on."""
    place = {id(draft): index for index, draft in enumerate(drafts)}
    followers: list[list[int]] = [[] for _ in drafts]
    missing = [0] * len(drafts)
    for index, draft in enumerate(drafts):
        draft.deps = list(dict.fromkeys(draft.deps))
        missing[index] = len(draft.deps)
        for dep in draft.deps:
            followers[place[id(dep)]].append(index)
    ready = [(draft.start, index) for index, draft in enumerate(drafts) if not missing[index]]
    heapq.heapify(ready)
    found: list[Draft] = []
    while ready:
        _, index = heapq.heappop(ready)
        found.append(drafts[index])
        drafts[index].number = len(found)
        for after in followers[index]:
            missing[after] -= 1
            if not missing[after]:
                heapq.heappush(ready, (drafts[after].start, after))
    if len(found) != len(drafts):
        raise BugError(f"{len(drafts) - len(found)} of {len(drafts)} nodes of a linked trace wait for each other")
    return found
