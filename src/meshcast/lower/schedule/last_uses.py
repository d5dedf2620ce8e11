"""How much memory traffic lies between a kernel and the last use of what it reads: whether a cache can still hold it.

The schedule is walked in launch order with a count of the bytes moved so far; a value's age is what was moved since it was
last touched. Programs and loops are taken in their steady state: the walk starts from the end of a run before, and a
body is aged in its second turn. What a kernel writes has the age of the same buffer's last use.
Which age fits in a cache is the estimator's business: nothing here knows a size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, Recency, Schedule, Step
from meshcast.lower.schedule.uses_in_loops import Turn, Turns, Uses
from meshcast.workload import Tensor

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
    return _RecencyWalk(schedule, tensors, placed=placed).aged(schedule)


def room(kernel: Kernel, given_back: frozenset[int] = frozenset()) -> int:
    """Bytes that must fit in together where a kernel is to find everything on chip: only loops write over what they read.

    Results that a program gives back go to memory, and take none.
    """
    written = 0 if given_back.issuperset(kernel.writes) else kernel.written_bytes
    if kernel.matrix_flops or kernel.kind is KernelKind.TRANSPOSE:
        return kernel.read_bytes + written
    return max(kernel.read_bytes, written)


def rounded_age(age: float) -> int:
    """An age to half an octave, so that equal kernels of different layers stay equal."""
    if age < LEAST:
        return 0
    return NEVER if age >= NEVER else round(2 ** (round(2 * math.log2(age)) / 2))


@dataclass(frozen=True, slots=True)
class _Forward:
    """From a program's begin: what was touched last."""

    tensors: Sequence[Tensor]
    placed: bool

    def steps(self, schedule: Schedule) -> Sequence[Step]:
        return schedule.steps

    def kernel(self, kernel: Kernel, uses: Uses) -> None:
        uses.now += kernel.read_bytes + kernel.written_bytes
        touched = (*kernel.reads, *kernel.writes, *kernel.updates)
        updated = self._parts(kernel) if self.placed and kernel.updates else None
        if not updated:
            uses.touch(touched)
            return
        uses.touch([value for value in touched if value not in updated])
        for value, target in updated.items():
            uses.follow(value, target)

    def branch(self, step: BranchStep, uses: Uses) -> None:
        uses.touch(step.writes)

    def enter(self, step: LoopStep, uses: Uses) -> None:
        for inside, outside in zip(step.body.inputs, step.reads, strict=False):
            uses.follow(inside, outside)

    def repeat(self, step: LoopStep, uses: Uses) -> None:
        for inside, carried in zip(step.body.inputs, step.body.outputs, strict=False):
            uses.follow(inside, carried)

    def leave(self, step: LoopStep, turn: Turn, uses: Uses, since: int) -> None:
        rest = max(0, step.trips - 2) * turn.moved
        uses.now += rest
        uses.postpone(turn, since, rest)
        for result, carried in zip(step.writes, step.body.outputs, strict=False):
            uses.follow(result, carried)

    def _parts(self, kernel: Kernel) -> dict[int, int]:
        """Buffers of which a kernel writes a small part in place, by their old and new names: the rest stays where it was."""
        found: dict[int, int] = {}
        for written, target in zip(kernel.writes, kernel.updates, strict=False):
            if kernel.written_bytes < self.tensors[target].bytes / 2:
                found |= {target: target, written: target}
        return found


class _RecencyWalk:
    def __init__(self, schedule: Schedule, tensors: Sequence[Tensor], *, placed: bool) -> None:
        self._tensors = tensors
        self._placed = placed
        self._given_back = frozenset(schedule.outputs)
        self._direction = _Forward(tensors, placed)
        self._turns = Turns(schedule, self._direction)
        self._uses = Uses(is_open=False)
        self._fetched: set[int] = set()  # what the loops around read from memory in every turn
        self._known: dict[tuple[object, ...], Recency] = {}  # equal ones are one object
        if not placed:
            self._uses.apply(self._turns.of(schedule))

    def aged(self, schedule: Schedule) -> Schedule:
        """Moves on and gives the steps their ages."""
        return replace(schedule, steps=tuple([self._aged(step) for step in schedule.steps]))

    def _aged(self, step: Step) -> Step:
        if isinstance(step, Kernel):
            recency = self._recency(step)
            self._direction.kernel(step, self._uses)
            return step.with_recency(recency)
        if isinstance(step, LoopStep):
            return replace(step, body=self._loop(step))
        bodies = tuple([self.aged(body) for body in step.bodies])
        self._direction.branch(step, self._uses)
        return BranchStep(bodies=bodies, reads=step.reads, writes=step.writes)

    def _loop(self, step: LoopStep) -> Schedule:
        """A loop's body, aged in its second turn."""
        around, self._fetched = self._fetched, self._fetched | self._left_in_memory(step)
        turn = self._turns.enter(step, self._uses)
        second = self._uses.now
        aged = self.aged(step.body)
        self._fetched = around
        self._direction.leave(step, turn, self._uses, second)
        return aged

    def _left_in_memory(self, step: LoopStep) -> set[int]:
        """What a product in a loop reads from outside and the compiler does not bring on chip before the loop.

        XLA:TPU does where that copy hides behind what happens before: where as many bytes are moved until then, the copies of
        what the loop carries included.
        """
        if not self._placed:
            return set()
        inside, given = step.body.inputs, step.reads
        kept = [v == carried for v, carried in zip(inside, step.body.outputs, strict=False)]
        before = self._uses.now + sum(
            self._tensors[value].bytes
            for value, same in zip(given, kept, strict=False)
            if not same and value not in self._uses.at
        )
        unchanged = [value for value, same in zip(inside, kept, strict=True) if same]
        return {value for value in (*unchanged, *given[len(inside) :]) if self._tensors[value].bytes > before}

    def _recency(self, kernel: Kernel) -> Recency | None:
        """Nothing where everything was just touched."""
        stepped = "cold" in kernel.flags  # reads another part of an operand in every turn of its loop
        fetched = self._fetched if kernel.matrix_flops else ()
        until = self._uses.now + (room(kernel, self._given_back) if self._placed else 0)
        # There is nothing before a program that a moment could be inherited from.
        touched = cast("dict[int, int]", self._uses.at).get
        before = until - NEVER
        ages: dict[int, int] = {}
        for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True):
            if size:
                cold = value in fetched or (stepped and size < self._tensors[value].bytes)
                age = NEVER if cold else until - touched(value, before)
                age = 0 if age < LEAST else rounded_age(age)
                ages[age] = ages.get(age, 0) + size
        written = 0
        for value in kernel.writes:
            age = until - touched(value, before)
            if age >= LEAST:
                written = max(written, rounded_age(age))
        if not written and not any(ages):
            return None
        reads = tuple(sorted(ages.items())) if len(ages) > 1 else tuple(ages.items())
        found = self._known.get((reads, written))
        if found is None:
            found = self._known[reads, written] = Recency(reads=reads, written=written)
        return found
