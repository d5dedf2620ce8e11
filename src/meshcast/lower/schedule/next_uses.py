"""How much memory traffic lies between a kernel and the next read of what it writes: whether it may stay on chip.

The mirror of `lower.schedule.last_uses`: the schedule is walked backwards with a count of the bytes moved, and a value's distance
is what is moved until it is read next, what its kernel touches included. A loop's body is followed by itself; what a block gives
back is never read again. Which distance fits a memory on chip is the estimator's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Recency, Schedule, Step
from meshcast.lower.schedule.last_uses import NEVER, room, rounded_age
from meshcast.lower.schedule.uses_in_loops import Turn, Turns, Uses
from meshcast.workload import Tensor


def with_reuse(schedule: Schedule, tensors: Sequence[Tensor]) -> Schedule:
    """The schedule with `Recency.kept` of what kernels write, and `Recency.again` of arguments that they read first."""
    return _ReuseWalk(schedule, tensors).told(schedule)


class _Backward:
    """From a program's end: what is read next."""

    def steps(self, schedule: Schedule) -> Iterable[Step]:
        return reversed(schedule.steps)

    def kernel(self, kernel: Kernel, uses: Uses) -> None:
        uses.now += kernel.read_bytes + kernel.written_bytes
        uses.touch(kernel.reads)

    def branch(self, step: BranchStep, uses: Uses) -> None:
        uses.touch(step.reads)

    def enter(self, step: LoopStep, uses: Uses) -> None:
        for result, carried in zip(step.writes, step.body.outputs, strict=False):
            uses.follow(carried, result)

    def repeat(self, step: LoopStep, uses: Uses) -> None:
        for carried, inside in zip(step.body.outputs, step.body.inputs, strict=False):
            uses.follow(carried, inside)

    def leave(self, step: LoopStep, turn: Turn, uses: Uses, since: int) -> None:
        uses.now += max(0, step.trips - 2) * turn.moved
        inputs = step.body.inputs
        for inside, outside in zip(inputs, step.reads, strict=False):
            uses.follow(outside, inside, uses.now)  # read when the loop begins, if any turn reads it
        uses.touch(step.reads[len(inputs) :])


def _first_readers(schedule: Schedule) -> dict[int, Step]:
    """Which step reads each of a program's arguments first."""
    found: dict[int, Step] = {}
    arguments = set(schedule.inputs)
    for step in schedule.steps:
        for value in arguments.intersection(step.reads):
            found[value] = step
            arguments.discard(value)
    return found


class _ReuseWalk:
    def __init__(self, schedule: Schedule, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._direction = _Backward()
        self._turns = Turns(schedule, self._direction)
        self._uses = Uses(is_open=False)
        self._given_back = frozenset(schedule.outputs)
        self._first = _first_readers(schedule)
        self._room: dict[int, int] = {}  # of the kernel that reads an argument next

    def told(self, schedule: Schedule) -> Schedule:
        """The steps with what becomes of their results."""
        steps = [self._step(step) for step in self._direction.steps(schedule)]
        return replace(schedule, steps=tuple(reversed(steps)))

    def _step(self, step: Step) -> Step:
        if isinstance(step, Kernel):
            told = self._kernel(step)
            self._direction.kernel(step, self._uses)
            self._room.update(dict.fromkeys(self._first.keys() & step.reads, room(step, self._given_back)))
            return told
        if isinstance(step, LoopStep):
            return self._loop(step)
        bodies = tuple([self.told(body) for body in step.bodies])
        self._direction.branch(step, self._uses)
        return BranchStep(bodies=bodies, reads=step.reads, writes=step.writes)

    def _loop(self, step: LoopStep) -> LoopStep:
        """A body in its last turn but one: what it gives back is read by itself."""
        turn = self._turns.enter(step, self._uses)
        since = self._uses.now
        told = self.told(step.body)
        self._direction.leave(step, turn, self._uses, since)
        return replace(step, body=told)

    def _kernel(self, kernel: Kernel) -> Kernel:
        sizes = [self._tensors[value].bytes for value in kernel.writes]
        whole = sum(sizes) or 1
        kept: dict[int, int] = {}
        for value, size in zip(kernel.writes, sizes, strict=True):
            # An update writes a part of its buffer: the parts of a kernel's results share what it writes by their sizes.
            written = round(kernel.written_bytes * size / whole)
            age = self._distance(value, kernel)
            kept[age] = kept.get(age, 0) + written
        recency = replace(
            kernel.recency or Recency(),
            kept=tuple(sorted(kept.items())),
            again=tuple(sorted(self._again(kernel).items())),
        )
        return kernel.with_recency(recency)

    def _again(self, kernel: Kernel) -> dict[int, int]:
        """Bytes of arguments that a kernel is the first to read, by their age when a kernel reads them next."""
        found: dict[int, int] = {}
        for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True):
            read, beside = self._uses.at.get(value), self._room.get(value)
            if self._first.get(value) is kernel and size and isinstance(read, int) and beside is not None:
                age = rounded_age(self._uses.now - read + beside)
                found[age] = found.get(age, 0) + size
        return found

    def _distance(self, value: int, kernel: Kernel) -> int:
        read = self._uses.at.get(value)
        if read is None:
            return NEVER
        assert isinstance(read, int)  # there is nothing behind a program that it could depend on
        return rounded_age(self._uses.now - read + room(kernel))
