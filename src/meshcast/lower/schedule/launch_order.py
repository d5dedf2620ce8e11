"""Launch order: program order, except that what frees memory runs as soon as it can.

XLA schedules for memory before anything else. Of what its list scheduler does, the part that matters most is kept: a
kernel that ends the life of more bytes than it begins (an optimizer update that consumes a gradient, a reduction of a
large temporary) does not wait for its place in the program. Kernels only ever move forward, so in-place updates, which
stay where they are, still come after every reader of what they overwrite.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.lower.kernel import Kernel, Step
from meshcast.workload import Tensor


def order_for_memory(steps: Sequence[Step], tensors: Sequence[Tensor], held: frozenset[int]) -> list[Step]:
    """The steps in launch order; `held` values (arguments and outputs) take no memory of their own."""
    return _Ordering(steps, tensors, held).result()


class _Ordering:
    def __init__(self, steps: Sequence[Step], tensors: Sequence[Tensor], held: frozenset[int]) -> None:
        self._steps = steps
        self._tensors = tensors
        self._held = held
        self._readers: dict[int, list[int]] = {}
        self._unread: dict[int, int] = {}  # value -> steps that have still to read it
        self._missing = [0] * len(steps)  # values that a step still waits for
        self._done = [False] * len(steps)
        self._order: list[Step] = []
        produced = {value for step in steps for value in step.writes}
        readers = self._readers
        for index, step in enumerate(steps):
            reads = set(step.reads)
            self._missing[index] = len(reads & produced)
            for value in reads:
                if value in readers:
                    readers[value].append(index)
                else:
                    readers[value] = [index]
        self._unread = {value: len(reading) for value, reading in readers.items()}

    def result(self) -> list[Step]:
        pending: list[int] = []
        for index, done in enumerate(self._done):  # which is looked at when its turn comes
            if not done:
                pending += filter(self._frees, self._run(index))
            while pending:
                at = pending.pop()
                if not self._done[at]:
                    pending += filter(self._frees, self._run(at))
        return self._order

    def _run(self, index: int) -> list[int]:
        """Runs a step; returns those that it may let run right after it."""
        step, readers, missing, unread = self._steps[index], self._readers, self._missing, self._unread
        self._done[index] = True
        self._order.append(step)
        touched: list[int] = []
        for value in step.writes:
            if value in readers:
                touched += readers[value]
        for reader in touched:
            missing[reader] -= 1
        for value in set(step.reads):
            left = unread[value] = unread[value] - 1
            if left == 1 and value not in self._held:
                touched += readers[value]
        return touched

    def _frees(self, index: int) -> bool:
        if self._done[index] or self._missing[index]:
            return False
        step = self._steps[index]
        if not isinstance(step, Kernel) or step.updates or step.collective:
            return False
        unread, held, tensors = self._unread, self._held, self._tensors
        dying = [v for v in step.reads if unread[v] == 1 and v not in held]
        if not dying:
            return False
        freed = sum([tensors[v].bytes for v in dying])
        return freed > sum([tensors[v].bytes for v in step.writes if v not in held])
