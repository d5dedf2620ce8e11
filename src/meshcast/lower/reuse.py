"""How much memory traffic lies between a kernel and the next read of what it writes: whether it may stay on chip.

The mirror of `lower.recency`: the schedule is walked backwards with a count of the bytes moved, and a value's distance is what
is moved until it is read next, what its kernel touches included. A loop's body is followed by itself; what a block gives
back is never read again. Which distance fits a memory on chip is the estimator's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Recency, Schedule, Step
from meshcast.lower.recency import NEVER, room, rounded_age
from meshcast.workload.graph import Tensor


def with_reuse(schedule: Schedule, tensors: Sequence[Tensor]) -> Schedule:
    """The schedule with `Recency.kept` of every kernel that writes something."""
    return _Backwards(tensors=tensors).told(schedule)


@dataclass(slots=True, kw_only=True)
class _Backwards:
    tensors: Sequence[Tensor]
    now: float = 0.0  # bytes moved so far, counted from the end
    next: dict[int, float] = field(default_factory=dict)  # when a value is read next, by the same count

    def told(self, schedule: Schedule) -> Schedule:
        """The steps with what becomes of their results."""
        steps = [self._step(step) for step in reversed(schedule.steps)]
        return replace(schedule, steps=tuple(reversed(steps)))

    def _step(self, step: Step) -> Step:
        if isinstance(step, Kernel):
            return self._kernel(step)
        if isinstance(step, LoopStep):
            return self._loop(step)
        bodies = tuple([self.told(body) for body in step.bodies])
        self._read(step.reads)
        return BranchStep(bodies=bodies, reads=step.reads, writes=step.writes)

    def _loop(self, step: LoopStep) -> LoopStep:
        """A body in its last turn but one: what it gives back is read by itself."""
        body = step.body
        for result, carried in zip(step.writes, body.outputs, strict=False):
            self._same(carried, result)
        ended = self.now
        self.told(body)
        turn = self.now - ended
        for carried, inside in zip(body.outputs, body.inputs, strict=False):
            self._same(carried, inside)
        told = self.told(body)
        self.now += max(0, step.trips - 2) * turn
        for inside, outside in zip(body.inputs, step.reads, strict=False):
            if inside in self.next:
                self.next[outside] = self.now
        self._read(step.reads[len(body.inputs) :])
        return replace(step, body=told)

    def _same(self, value: int, other: int) -> None:
        """Two names of one buffer."""
        if other in self.next:
            self.next[value] = self.next[other]

    def _read(self, values: Sequence[int]) -> None:
        for value in values:
            self.next[value] = self.now

    def _kernel(self, kernel: Kernel) -> Kernel:
        sizes = [self.tensors[value].bytes for value in kernel.writes]
        whole = sum(sizes) or 1
        kept: dict[int, int] = {}
        for value, size in zip(kernel.writes, sizes, strict=True):
            distance = self.now - self.next[value] + room(kernel) if value in self.next else NEVER
            # An update writes a part of its buffer: the parts of a kernel's results share what it writes by their sizes.
            written = round(kernel.written_bytes * size / whole)
            age = rounded_age(distance)
            kept[age] = kept.get(age, 0) + written
        self.now += kernel.read_bytes + kernel.written_bytes
        self._read(kernel.reads)
        recency = replace(kernel.recency or Recency(), kept=tuple(sorted(kept.items())))
        return replace(kernel, recency=recency)
