"""Launch orders by XLA's list scheduler and depth first, taken where they need less memory than the program's own order.

XLA's memory scheduler works out several orders and keeps the one whose buffers take least (`DefaultMemoryScheduler` in
hlo_memory_scheduler.cc; the second is in `depth_first.py`). Its `ListScheduler` runs, of all that could run next, what frees
most: the bytes of operands that die less those of results. So chains that end in results (an optimizer's update, a branch of a
network) run one after the other, and what only grows memory (a padded copy) waits until something needs it. Slices of what a loop
steps through do not wait: XLA copies them beside other kernels (`fusion-start`), and its latency-hiding scheduler begins that as
early as it can.

What a step writes over is read by everybody else before; loops and branches keep their order, and a launch without results (a
memset) stays before the launch that it is for.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from itertools import pairwise

from meshcast.lower.depth_first import depth_first_order
from meshcast.lower.kernel import Kernel, Step
from meshcast.workload import Tensor

LESS = 0.98  # of the other order's bytes: the launch order is changed for no less than that


def with_less_memory(steps: Sequence[Step], tensors: Sequence[Tensor], held: frozenset[int]) -> list[Step]:
    """The steps as they are or as listed; `held` values (arguments and outputs) take no memory of their own.

    Blocks with collectives are left alone: their order is planned for what hides them (`simulate.issue_order`).
    """
    if any(isinstance(step, Kernel) and step.collective is not None for step in steps):
        return list(steps)
    kept = most_bytes(steps, tensors, held)
    if not kept:
        return list(steps)
    graph = _List(steps, tensors, held)
    orders = graph.result(), graph.depth_first()  # of equals XLA takes the first
    sizes = [most_bytes(order, tensors, held) for order in orders]
    return orders[sizes.index(min(sizes))] if min(sizes) < LESS * kept else list(steps)


def most_bytes(steps: Sequence[Step], tensors: Sequence[Tensor], held: frozenset[int]) -> int:
    """The most that values take at once which are made here and read by later steps."""
    last = {value: index for index, step in enumerate(steps) for value in step.reads}
    live = most = 0
    made: set[int] = set()
    for index, step in enumerate(steps):
        for value in step.writes:
            if value not in held and value not in made:
                made.add(value)
                live += tensors[value].bytes
        most = max(most, live)
        dying = [v for v in {*step.reads, *step.writes} if v in made and last.get(v, index) == index]
        live -= sum([tensors[value].bytes for value in dying])
    return most


class _List:
    def __init__(self, steps: Sequence[Step], tensors: Sequence[Tensor], held: frozenset[int]) -> None:
        self._units = _units(steps)
        self._tensors, self._held = tensors, held
        units = self._units
        maker = {value: at for at, unit in enumerate(units) for step in unit for value in step.writes}
        self._reads = [{value for step in unit for value in step.reads} for unit in units]
        self._writes = [[value for step in unit for value in step.writes if value not in held] for unit in units]
        self._readers: dict[int, list[int]] = {}
        for at, reads in enumerate(self._reads):
            for value in reads:
                self._readers.setdefault(value, []).append(at)
        before = [
            {maker[value] for value in reads if value in maker and maker[value] != at}
            for at, reads in enumerate(self._reads)
        ]
        self._keep_apart(before)
        self._before = before
        self._after: list[list[int]] = [[] for _ in units]
        for at, earlier in enumerate(before):
            for one in earlier:
                self._after[one].append(at)
        self._missing = [len(earlier) for earlier in before]
        self._unread = {value: len(readers) for value, readers in self._readers.items()}
        self._own = {value for writes in self._writes for value in writes}
        self._begun_early = [any(_is_stepped_copy(step) for step in unit) for unit in units]

    def _keep_apart(self, before: list[set[int]]) -> None:
        """What is written over is read first, and loops and branches come in their order."""
        together = [at for at, unit in enumerate(self._units) if not all(isinstance(step, Kernel) for step in unit)]
        for one, other in pairwise(together):
            before[other].add(one)
        for at, unit in enumerate(self._units):
            for step in unit:
                for value in step.updates if isinstance(step, Kernel) else ():
                    before[at].update(reader for reader in self._readers.get(value, ()) if reader < at)
                    for reader in self._readers.get(value, ()):
                        if reader > at:
                            before[reader].add(at)

    def result(self) -> list[Step]:
        """All steps in the list scheduler's order."""
        ready = [(-self._freed(at), at) for at, missing in enumerate(self._missing) if not missing]
        heapq.heapify(ready)
        done = [False] * len(self._units)
        order: list[Step] = []
        while ready:
            less, at = heapq.heappop(ready)
            if done[at]:
                continue
            freed = -self._freed(at)
            if freed != less:  # others have run since, and what it reads may die with it now
                heapq.heappush(ready, (freed, at))
                continue
            done[at] = True
            order += self._units[at]
            for value in self._reads[at]:
                self._unread[value] -= 1
                if self._unread[value] == 1:
                    for reader in self._readers[value]:
                        if not done[reader] and not self._missing[reader]:
                            heapq.heappush(ready, (-self._freed(reader), reader))
            for later in self._after[at]:
                self._missing[later] -= 1
                if not self._missing[later]:
                    heapq.heappush(ready, (-self._freed(later), later))
        return order

    def depth_first(self) -> list[Step]:
        """All steps depth first, each behind what leads to it; what begins early and waits for nothing is first here, too."""
        sizes = [sum([self._tensors[value].bytes for value in writes]) for writes in self._writes]
        order = depth_first_order(self._before, sizes)
        order.sort(key=lambda at: not (self._begun_early[at] and not self._before[at]))
        return [step for at in order for step in self._units[at]]

    def _freed(self, at: int) -> int:
        """Bytes that are free once a unit has run, less those that it takes; more than any where it begins early."""
        if self._begun_early[at]:
            return sys.maxsize
        dying = [v for v in self._reads[at] if self._unread[v] == 1 and v in self._own]
        return sum([self._tensors[v].bytes for v in dying]) - sum([self._tensors[v].bytes for v in self._writes[at]])


def _units(steps: Sequence[Step]) -> list[list[Step]]:
    """Steps that stay together: those without results, and what follows them."""
    units: list[list[Step]] = []
    open_unit = False
    for step in steps:
        if open_unit:
            units[-1].append(step)
        else:
            units.append([step])
        open_unit = not step.writes
    return units


def _is_stepped_copy(step: Step) -> bool:
    """Whether a step copies another part of a value in every turn of its loop."""
    return isinstance(step, Kernel) and step.flags >= {"copy", "cold"}
