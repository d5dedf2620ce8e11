"""How much memory traffic lies between a kernel and the last use of what it reads: whether a cache can still hold it.

The schedule is walked in launch order with a count of the bytes moved so far; a value's age is what was moved since it was
last touched. Programs and loops are taken in their steady state: the walk starts from the end of a run before, and a
body is aged in its second turn. What a kernel writes has the age of the same buffer's last use.
Which age fits in a cache is the estimator's business: nothing here knows a size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, Recency, Schedule, Step
from meshcast.workload.graph import Tensor

NEVER = 1 << 34  # an age beyond any cache: also that of what was never touched
# Ages below are none: such traffic pushes nothing out of any cache (the catalogue's smallest, a V100's L2, has 24 times as
# much), and without them equal kernels with small neighbours of different sizes stay equal.
LEAST = 1 << 18


def with_recency(schedule: Schedule, tensors: Sequence[Tensor], *, placed: bool = False) -> Schedule:
    """The schedule with every kernel's `recency`.

    Args:
        schedule: In launch order.
        tensors: Types of all values.
        placed: For a memory on chip that a compiler fills, not a cache: a value must fit in as a whole beside what else its
            kernel touches, so that its age counts those bytes too, and nothing is left there from a run before.
    """
    walk = _Walk(tensors=tensors, placed=placed)
    if not placed:
        walk.pass_over(schedule)
    return walk.aged(schedule)


def room(kernel: Kernel) -> int:
    """Bytes that must fit in together where a kernel is to find everything on chip: only loops write over what they read."""
    if kernel.matrix_flops or kernel.kind is KernelKind.TRANSPOSE:
        return kernel.read_bytes + kernel.written_bytes
    return max(kernel.read_bytes, kernel.written_bytes)


def rounded_age(age: float) -> int:
    """An age to half an octave, so that equal kernels of different layers stay equal."""
    if age < LEAST:
        return 0
    return NEVER if age >= NEVER else round(2 ** (round(2 * math.log2(age)) / 2))


@dataclass(slots=True, kw_only=True)
class _Walk:
    tensors: Sequence[Tensor]
    placed: bool = False
    now: float = 0.0  # bytes moved so far
    last: dict[int, float] = field(default_factory=dict)  # when a value was last touched, by the same count
    fetched: set[int] = field(default_factory=set)  # what the loops around read from memory in every turn

    def pass_over(self, schedule: Schedule) -> None:
        """Moves on without recording."""
        for step in schedule.steps:
            self._visit(step)

    def aged(self, schedule: Schedule) -> Schedule:
        """Moves on and gives the steps their ages."""
        return replace(schedule, steps=tuple([self._aged(step) for step in schedule.steps]))

    def _visit(self, step: Step) -> None:
        if isinstance(step, Kernel):
            self._touch(step)
        elif isinstance(step, LoopStep):
            self._loop(step)
        else:
            for body in step.bodies:
                self.pass_over(body)
            self._written(step.writes)

    def _aged(self, step: Step) -> Step:
        if isinstance(step, Kernel):
            recency = self._recency(step)
            self._touch(step)
            return replace(step, recency=recency)
        if isinstance(step, LoopStep):
            return replace(step, body=self._loop(step))
        bodies = tuple([self.aged(body) for body in step.bodies])
        self._written(step.writes)
        return BranchStep(bodies=bodies, reads=step.reads, writes=step.writes)

    def _loop(self, step: LoopStep) -> Schedule:
        """A loop's body, aged in its second turn."""
        body = step.body
        for inside, outside in zip(body.inputs, step.reads, strict=False):
            self._same(inside, outside)
        around, self.fetched = self.fetched, self.fetched | self._left_in_memory(step)
        started = self.now
        self.pass_over(body)
        turn = self.now - started
        for inside, carried in zip(body.inputs, body.outputs, strict=False):
            self._same(inside, carried)
        second = self.now
        aged = self.aged(body)
        self.fetched = around
        rest = max(0, step.trips - 2) * turn
        self.now += rest
        for value, touched in self.last.items():
            if touched > second:
                self.last[value] = touched + rest
        for result, carried in zip(step.writes, body.outputs, strict=False):
            self._same(result, carried)
        return aged

    def _left_in_memory(self, step: LoopStep) -> set[int]:
        """What a product in a loop reads from outside and the compiler does not bring on chip before the loop.

        XLA:TPU does where that copy hides behind what happens before: where as many bytes are moved until then, the copies of
        what the loop carries included.
        """
        if not self.placed:
            return set()
        inside, given = step.body.inputs, step.reads
        kept = [v == carried for v, carried in zip(inside, step.body.outputs, strict=False)]
        before = self.now + sum(
            self.tensors[value].bytes
            for value, same in zip(given, kept, strict=False)
            if not same and value not in self.last
        )
        unchanged = [value for value, same in zip(inside, kept, strict=True) if same]
        return {value for value in (*unchanged, *given[len(inside) :]) if self.tensors[value].bytes > before}

    def _same(self, value: int, other: int) -> None:
        """Two names of one buffer."""
        if other in self.last:
            self.last[value] = self.last[other]

    def _touch(self, kernel: Kernel) -> None:
        self.now += kernel.read_bytes + kernel.written_bytes
        updated = self._parts(kernel) if self.placed else {}
        for values in (kernel.reads, kernel.writes, kernel.updates):
            self._written([value for value in values if value not in updated])
        for value, target in updated.items():
            self._same(value, target)

    def _parts(self, kernel: Kernel) -> dict[int, int]:
        """Buffers of which a kernel writes a small part in place, by their old and new names: the rest stays where it was."""
        found: dict[int, int] = {}
        for written, target in zip(kernel.writes, kernel.updates, strict=False):
            if kernel.written_bytes < self.tensors[target].bytes / 2:
                found |= {target: target, written: target}
        return found

    def _written(self, values: Sequence[int]) -> None:
        for value in values:
            self.last[value] = self.now

    def _age(self, value: int, kernel: Kernel) -> int:
        beside = room(kernel) if self.placed else 0
        return rounded_age(self.now - self.last.get(value, -math.inf) + beside)

    def _recency(self, kernel: Kernel) -> Recency | None:
        """Nothing where everything was just touched."""
        stepped = "cold" in kernel.flags  # reads another part of an operand in every turn of its loop
        fetched = self.fetched if kernel.matrix_flops else ()
        ages: dict[int, int] = {}
        for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True):
            if size:
                cold = value in fetched or (stepped and size < self.tensors[value].bytes)
                age = NEVER if cold else self._age(value, kernel)
                ages[age] = ages.get(age, 0) + size
        written = max((self._age(value, kernel) for value in kernel.writes), default=0)
        return Recency(reads=tuple(sorted(ages.items())), written=written) if written or any(ages) else None
