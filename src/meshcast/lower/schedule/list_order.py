"""Launch orders by XLA's list scheduler and depth first, taken where they need less memory than the program's own order.

XLA's memory scheduler works out several orders and keeps the one whose buffers take least (`DefaultMemoryScheduler` in
hlo_memory_scheduler.cc; the second is in `depth_first_order.py`). Its `ListScheduler` runs, of all that could run next, what
frees
most: the bytes of operands that die less those of results. So chains that end in results (an optimizer's update, a branch of a
network) run one after the other, and what only grows memory (a padded copy) waits until something needs it. Slices of what a loop
steps through do not wait: XLA makes asynchronous copies of them (`fusion-start`), which its latency-hiding scheduler begins as
early as it can. That decides their place alone: on GPUs they take their turn among the kernels all the same
(`compiled/scheduled_hlo.py`).

What a step writes over is read by everybody else before; loops and branches keep their order, and a launch without results (a
memset) stays before the launch that it is for.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise

from meshcast.lower.kernel import Kernel, Step
from meshcast.lower.schedule.depth_first_order import depth_first_order
from meshcast.workload import Tensor

LESS = 0.98  # of the other order's bytes: the launch order is changed for no less than that
_GONE = -1  # the place where a value is read last, once it was


def with_less_memory(steps: Sequence[Step], tensors: Sequence[Tensor], held: frozenset[int]) -> list[Step]:
    """The steps as they are or as listed; `held` values (arguments and outputs) take no memory of their own.

    Blocks with collectives are left alone: their order is planned for what hides them (`simulate.issue_order`).
    """
    if any(isinstance(step, Kernel) and step.collective is not None for step in steps):
        return list(steps)
    sizes = made_bytes(steps, tensors, held)
    kept = most_bytes(steps, sizes)
    if least_bytes(steps, sizes) >= LESS * kept:
        return list(steps)
    graph = _List(steps, sizes)
    orders = graph.result(), graph.depth_first()  # of equals XLA takes the first
    most = [most_bytes(order, sizes) for order in orders]
    return orders[most.index(min(most))] if min(most) < LESS * kept else list(steps)


def made_bytes(steps: Sequence[Step], tensors: Sequence[Tensor], held: frozenset[int]) -> dict[int, int]:
    """The sizes of what steps make, but for `held` values."""
    return {value: tensors[value].bytes for step in steps for value in step.writes if value not in held}


def least_bytes(steps: Sequence[Step], sizes: Mapping[int, int]) -> int:
    """What no order takes less than: the values that one step reads and writes, of those with sizes."""
    return max([sum([sizes.get(value, 0) for value in {*step.reads, *step.writes}]) for step in steps], default=0)


def most_bytes(steps: Sequence[Step], sizes: Mapping[int, int]) -> int:
    """The most that values take at once which are made here and read by later steps; `sizes` are theirs."""
    last = {value: index for index, step in enumerate(steps) for value in step.reads}
    live = most = 0
    made: set[int] = set()
    for index, step in enumerate(steps):
        for value in step.writes:
            if value in sizes and value not in made:
                made.add(value)
                live += sizes[value]
        if live > most:
            most = live
        for value in step.reads:
            if last[value] == index and value in made:
                last[value] = _GONE
                live -= sizes[value]
        for value in step.writes:
            if value in made and value not in last:  # nobody reads it
                live -= sizes[value]
    return most


class _List:
    def __init__(self, steps: Sequence[Step], sizes: Mapping[int, int]) -> None:
        """Begins with steps in program order, and the sizes of what they make."""
        self._units = units = _units(steps)
        self._sizes = sizes
        maker = {value: at for at, unit in enumerate(units) for step in unit for value in step.writes}
        self._reads = [{value for step in unit for value in step.reads} for unit in units]
        self._made_bytes = [
            sum([sizes[value] for step in unit for value in step.writes if value in sizes]) for unit in units
        ]
        self._readers: dict[int, list[int]] = {}
        before: list[set[int]] = []
        for at, reads in enumerate(self._reads):
            waits: set[int] = set()
            for value in reads:
                self._readers.setdefault(value, []).append(at)
                if value in maker:
                    waits.add(maker[value])
            waits.discard(at)
            before.append(waits)
        self._keep_apart(before)
        self._before = before
        self._after: list[list[int]] = [[] for _ in units]
        for at, earlier in enumerate(before):
            for one in earlier:
                self._after[one].append(at)
        self._missing = [len(earlier) for earlier in before]
        self._unread = {value: len(readers) for value, readers in self._readers.items()}
        self._begun_early = [any([_is_stepped_copy(step) for step in unit]) for unit in units]

    def _keep_apart(self, before: list[set[int]]) -> None:
        """What is written over is read first, and loops and branches come in their order."""
        together = [at for at, unit in enumerate(self._units) if not all([isinstance(step, Kernel) for step in unit])]
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
        order = depth_first_order(self._before, self._made_bytes)
        order.sort(key=lambda at: not (self._begun_early[at] and not self._before[at]))
        return [step for at in order for step in self._units[at]]

    def _freed(self, at: int) -> int:
        """Bytes that are free once a unit has run, less those that it takes; more than any where it begins early."""
        if self._begun_early[at]:
            return sys.maxsize
        unread, sizes, freed = self._unread, self._sizes, -self._made_bytes[at]
        for value in self._reads[at]:
            if unread[value] == 1 and value in sizes:
                freed += sizes[value]
        return freed


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
    return isinstance(step, Kernel) and "copy" in step.flags and "cold" in step.flags
