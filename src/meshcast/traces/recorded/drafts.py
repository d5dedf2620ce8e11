"""`Drafts`: the nodes of a linked trace in columns, before they have numbers; and in order, each behind what it waits for."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from meshcast.base import BugError
from meshcast.chakra import NodeType
from meshcast.traces.recorded.collectives import Exchange
from meshcast.traces.recorded.columns import FLAG, LONG, NONE, SHORT, ColumnTable, as_numbers, column
from meshcast.traces.recorded.operators import Operator

# What a draft is: an operator or call of the host from its begin on, the rest of one, a pause between two, work of the device,
# a delay of the device that nothing in the trace explains.
BEGINS, GOES_ON, PAUSES, WORKS, WAITS = range(5)
REST = "(rest)"
OFFSET = "begins later"


@dataclass(slots=True, kw_only=True, frozen=True)
class Draft:
    """One node as a value.

    Attributes:
        start: When what it stands for began, behind everything that it waited for; nanoseconds of the profiler's clock.
        duration: Nanoseconds of its own, without what it waited for.
        lane: The thread of the host or the stream of the device.
        deps: Numbers of what it waits for.
        parent: The number of what called it; 0 where nothing did.
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
    deps: tuple[int, ...] = ()
    parent: int = 0
    waits: bool = False
    pause: bool = False
    communication: Exchange | None = None
    operator: Operator | None = field(default=None, repr=False)
    external: int = -1
    moved: int = 0
    number: int = 0


class Drafts(ColumnTable):
    """All nodes of a rank: those of the host first, then work of the device with its delays.

    Columns:
        name: The place of its name in `names`; `what` it is.
        parent: The row of what called it; -1 where nothing did.
        until: Where what it waits for ends among `deps`; it begins where that of the row before ends.

    Attributes:
        names: Names; of the rest of an operator the operator's.
        deps: Rows that are waited for.
        order: Rows in the order of their numbers, which begin with 1; `number` the numbers by row.
        communication: What rows exchange; so `operator` and `moved`.
    """

    CODES: ClassVar[Mapping[str, str]] = {
        "name": SHORT, "what": FLAG, "start": LONG, "duration": LONG, "lane": LONG, "external": LONG, "parent": SHORT,
        "until": LONG,
    }  # fmt: skip
    name: array[int]
    what: array[int]
    start: array[int]
    duration: array[int]
    lane: array[int]
    external: array[int]
    parent: array[int]
    until: array[int]

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)
        self.deps = array(SHORT)
        self.order, self.number = array(SHORT), array(SHORT)
        self.communication: dict[int, Exchange] = {}
        self.operator: dict[int, Operator] = {}
        self.moved: dict[int, int] = {}

    def add_draft(
        self, name: int, what: int, start: int, duration: int, lane: int, deps: Iterable[int], *, external: int = -1,
        parent: int = NONE,
    ) -> int:  # fmt: skip
        """Adds a row with what it waits for; gives its place."""
        self.deps.extend(dict.fromkeys(deps))
        return self.add(name, what, start, duration, lane, external, parent, len(self.deps))

    def named(self, name: str) -> int:
        """The place of a new name."""
        self.names.append(name)
        return len(self.names) - 1

    def waited_for(self, row: int) -> array[int]:
        """Rows that a row waits for."""
        return self.deps[self.until[row - 1] if row else 0 : self.until[row]]

    def collectives(self) -> list[int]:
        """Rows of collectives, by number."""
        found = [row for row, said in self.communication.items() if said.code is not None]
        return sorted(found, key=self.number.__getitem__)

    def end(self, row: int) -> int:
        """When a row ended."""
        return self.start[row] + self.duration[row]

    def __iter__(self) -> Iterator[Draft]:
        """All nodes, by number."""
        return map(self.draft, self.order)

    def draft(self, row: int) -> Draft:
        """A row as a value."""
        what = self.what[row]
        said = self.communication.get(row)
        kind = NodeType.COMPUTE
        if said is not None:
            kind = NodeType.COLLECTIVE if said.code is not None else NodeType.SEND if said.sends else NodeType.RECEIVE
        name = self.names[self.name[row]]
        parent = self.parent[row]
        return Draft(
            name=f"{name} {REST}" if what == GOES_ON else name, kind=kind, start=self.start[row],
            duration=self.duration[row], host=what < WORKS, lane=self.lane[row],
            deps=tuple(sorted(self.number[each] for each in self.waited_for(row))),
            parent=0 if parent == NONE else self.number[parent], waits=what == WAITS, pause=what == PAUSES,
            communication=said, operator=self.operator.get(row), external=self.external[row],
            moved=self.moved.get(row, 0), number=self.number[row],
        )  # fmt: skip

    def begin_later(self, start: int, later: int) -> None:
        """Puts a node of the host's in front of all that wait for nothing."""
        until = as_numbers(self.until)
        counts = np.diff(until, prepend=0)
        free = np.flatnonzero(counts == 0)
        self.deps = column(SHORT, np.insert(as_numbers(self.deps), until[free], len(self)))
        counts[free] = 1
        self.until = column(LONG, np.cumsum(counts))
        self._appends = self._bound()
        self.add_draft(self.named(OFFSET), PAUSES, start, later, 0, ())
        self.put_in_rows()

    def put_in_rows(self) -> None:
        """Numbers the rows from 1 on by their starts, each behind all that it waits for."""
        until = as_numbers(self.until)
        missing = column(SHORT, np.diff(until, prepend=0))
        waiting = np.repeat(np.arange(len(self), dtype=np.int32), as_numbers(missing))
        deps = np.frombuffer(self.deps, dtype=SHORT) if len(self.deps) else np.empty(0, np.int32)
        followers = column(SHORT, waiting[np.argsort(deps, kind="stable")])
        last = column(LONG, np.cumsum(np.bincount(deps, minlength=len(self))))
        del waiting, until
        starts = self.start
        ready = [(starts[row], row) for row, count in enumerate(missing) if not count]
        heapq.heapify(ready)
        order = array(SHORT)
        while ready:
            _, row = heapq.heappop(ready)
            order.append(row)
            for at in range(last[row - 1] if row else 0, last[row]):
                after = followers[at]
                missing[after] -= 1
                if not missing[after]:
                    heapq.heappush(ready, (starts[after], after))
        if len(order) != len(self):
            raise BugError(f"{len(self) - len(order)} of {len(self)} nodes of a linked trace wait for each other")
        numbers = np.empty(len(order), dtype=np.int64)
        numbers[as_numbers(order)] = np.arange(1, len(order) + 1)
        self.order, self.number = order, column(SHORT, numbers)
