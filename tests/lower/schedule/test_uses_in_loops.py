"""Loops in loops: ages as by running every body twice, and every body visited as often as at depth one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, Recency, Schedule, Step
from meshcast.lower.schedule.last_uses import NEVER, room, rounded_age, with_recency
from meshcast.lower.schedule.next_uses import with_reuse
from meshcast.lower.schedule.uses_in_loops import Uses
from meshcast.workload.graph import Tensor

MEGABYTE = Tensor((2**18,), "f32")


class Builder:
    """A program at random: kernels, updates in place, loops and branches, over values that are in sight."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.tensors: list[Tensor] = []

    def value(self) -> int:
        self.tensors.append(Tensor((2 ** self.draw.randrange(16, 22),), "f32"))
        return len(self.tensors) - 1

    def program(self) -> Schedule:
        inputs = [self.value() for _ in range(3)]
        return self.block(inputs, inputs, depth=3)

    def block(self, inputs: Sequence[int], seen: Sequence[int], depth: int, outputs: int = 1) -> Schedule:
        seen = list(seen)
        steps: list[Step] = []
        for _ in range(self.draw.randrange(1, 5)):
            step = self.step(seen, depth)
            steps.append(step)
            seen += step.writes
        return Schedule(
            inputs=tuple(inputs), outputs=tuple(self.draw.choices(seen, k=outputs)), steps=tuple(steps)
        )  # fmt: skip

    def step(self, seen: Sequence[int], depth: int) -> Step:
        kind = self.draw.choice(("kernel", "kernel", "update", "loop", "branch")) if depth else "kernel"
        reads = tuple(dict.fromkeys(self.draw.choices(seen, k=2)))
        if kind == "loop":
            inside = [self.value() for _ in reads]
            body = self.block(inside, [*seen, *inside], depth - 1, outputs=len(inside))
            writes = tuple(self.value() for _ in inside)
            return LoopStep(label="loop", body=body, trips=self.draw.choice((1, 2, 3, 50)), reads=reads, writes=writes)
        if kind == "branch":
            bodies = tuple(self.block((), seen, depth - 1) for _ in range(2))
            return BranchStep(bodies=bodies, reads=reads, writes=(self.value(),))
        sizes = tuple(self.tensors[value].bytes for value in reads)
        written = self.value()
        return Kernel(
            name=f"k{written}", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=reads, operand_bytes=sizes,
            writes=(written,), read_bytes=sum(sizes), written_bytes=self.tensors[written].bytes // 8,
            updates=reads[:1] if kind == "update" else (), matrix_flops=float(self.draw.randrange(2)),
        )  # fmt: skip


@dataclass
class TwiceOver:
    """Last uses by running every loop's body twice, the loops in it four times, and so on."""

    tensors: Sequence[Tensor]
    now: float = 0
    last: dict[int, float] = field(default_factory=dict)
    found: dict[str, Recency | None] = field(default_factory=dict)

    def run(self, schedule: Schedule) -> None:
        for step in schedule.steps:
            if isinstance(step, Kernel):
                self.found[step.name] = self.recency(step)
                self.now += step.read_bytes + step.written_bytes
                self.last |= dict.fromkeys((*step.reads, *step.writes, *step.updates), self.now)
            elif isinstance(step, LoopStep):
                self.loop(step)
            else:
                for body in step.bodies:
                    self.run(body)
                self.last |= dict.fromkeys(step.writes, self.now)

    def loop(self, step: LoopStep) -> None:
        self.same(step.body.inputs, step.reads)
        began = self.now
        self.run(step.body)
        turn = self.now - began
        self.same(step.body.inputs, step.body.outputs)
        second = self.now
        self.run(step.body)
        rest = max(0, step.trips - 2) * turn
        self.now += rest
        self.last = {value: at + rest if at > second else at for value, at in self.last.items()}
        self.same(step.writes, step.body.outputs)

    def same(self, values: Sequence[int], others: Sequence[int]) -> None:
        for value, other in zip(values, others, strict=False):
            if other in self.last:
                self.last[value] = self.last[other]

    def age(self, value: int) -> int:
        return rounded_age(self.now - self.last[value]) if value in self.last else NEVER

    def recency(self, kernel: Kernel) -> Recency | None:
        ages: dict[int, int] = {}
        for value, size in zip(kernel.reads, kernel.operand_bytes, strict=True):
            ages[self.age(value)] = ages.get(self.age(value), 0) + size
        written = max(map(self.age, kernel.writes))
        return Recency(reads=tuple(sorted(ages.items())), written=written) if written or any(ages) else None


@dataclass
class TwiceBack:
    """Next reads by the same way, from the end."""

    tensors: Sequence[Tensor]
    now: float = 0
    next: dict[int, float] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)

    def run(self, schedule: Schedule) -> None:
        for step in reversed(schedule.steps):
            if isinstance(step, Kernel):
                (value,) = step.writes
                known = value in self.next
                self.found[step.name] = rounded_age(self.now - self.next[value] + room(step)) if known else NEVER
                self.now += step.read_bytes + step.written_bytes
                self.next |= dict.fromkeys(step.reads, self.now)
            elif isinstance(step, LoopStep):
                self.loop(step)
            else:
                for body in step.bodies:
                    self.run(body)
                self.next |= dict.fromkeys(step.reads, self.now)

    def loop(self, step: LoopStep) -> None:
        body = step.body
        self.same(body.outputs, step.writes)
        began = self.now
        self.run(body)
        turn = self.now - began
        self.same(body.outputs, body.inputs)
        self.run(body)
        self.now += max(0, step.trips - 2) * turn
        for inside, outside in zip(body.inputs, step.reads, strict=False):
            if inside in self.next:
                self.next[outside] = self.now

    def same(self, values: Sequence[int], others: Sequence[int]) -> None:
        for value, other in zip(values, others, strict=False):
            if other in self.next:
                self.next[value] = self.next[other]


@pytest.mark.parametrize("seed", range(60))
def test_ages_are_those_of_running_every_body_twice(seed: int) -> None:
    builder = Builder(seed)
    program = builder.program()
    by_hand = TwiceOver(builder.tensors)
    by_hand.run(program)
    by_hand.run(program)
    aged = with_recency(program, builder.tensors)
    assert {kernel.name: kernel.recency for kernel, _ in aged.walk()} == by_hand.found


@pytest.mark.parametrize("seed", range(60))
def test_next_reads_are_those_of_running_every_body_twice(seed: int) -> None:
    builder = Builder(seed)
    program = builder.program()
    by_hand = TwiceBack(builder.tensors)
    by_hand.run(program)
    told = with_reuse(program, builder.tensors)
    assert {k.name: k.recency.kept[0][0] for k, _ in told.walk() if k.recency} == by_hand.found


def nest(depth: int) -> Schedule:
    """Loops in each other, with a kernel at each depth."""
    body = Schedule(inputs=(0,), outputs=(0,), steps=())
    for level in range(depth):
        first = 3 * level
        step = Kernel(
            name=f"k{level}", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=(first,), operand_bytes=(8,), read_bytes=8,
            writes=(first + 1,),
        )  # fmt: skip
        body = replace(body, inputs=(first,), outputs=(first + 1,), steps=(step, *body.steps))
        loop = LoopStep(label="loop", body=body, trips=3, reads=(first + 3,), writes=(first + 2,))
        body = Schedule(inputs=(first + 3,), outputs=(first + 2,), steps=(loop,))
    return body


@pytest.mark.parametrize("walk", [with_recency, with_reuse])
def test_work_grows_with_depth_as_with_length(walk, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    touched = 0
    touch = Uses.touch

    def counting(self: Uses, values: Sequence[int]) -> None:
        nonlocal touched
        touched += 1
        touch(self, values)

    monkeypatch.setattr(Uses, "touch", counting)
    counts = []
    for depth in (10, 20):
        touched = 0
        walk(nest(depth), [MEGABYTE] * (3 * depth + 3))
        counts.append(touched)
    assert counts[1] <= 2.1 * counts[0]
