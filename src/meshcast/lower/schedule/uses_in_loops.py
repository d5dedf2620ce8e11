"""What one run of a block does to the uses of values next to it, worked out once a block however deep loops are nested.

`lower.schedule.last_uses` has to know when values were last touched at the begin of a loop's second turn, and
`lower.schedule.next_uses` when they are touched next at the end of the last but one, so both run over every body twice: a loop in
a loop would be visited four times, and one at depth d 2^d times. A `Turn` says what a run of a block leaves behind whatever was
before: the bytes it moves, and for each value the moment of its use, counted from the block's begin, or which value's earlier
moment it takes over. Turns of inner loops are applied in those of outer ones.

Values that occur in a loop's body alone are left out of the turns around it: each visit of the loop begins with a turn that
gives them their moments anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step


@dataclass(frozen=True, slots=True)
class Inherited:
    """A moment that depends on which values were touched before the block.

    Attributes:
        choices: Values, each with a moment: of the first one that was touched, this moment counts, or its own if None.
        otherwise: The moment where none was; None: never.
    """

    choices: tuple[tuple[int, int | None], ...]
    otherwise: int | None = None


Moment = int | Inherited


@dataclass(frozen=True, slots=True)
class Turn:
    """The bytes that a run of a block moves, and when it touches values last."""

    moved: int  # bytes
    uses: dict[int, Moment]


@dataclass(slots=True, kw_only=True)
class Uses:
    """When values were touched, in bytes moved since the begin: of a program, or of a block (`is_open`)."""

    is_open: bool  # whether there is something before, which `Inherited` refers to
    now: int = 0
    at: dict[int, Moment] = field(default_factory=dict)

    def touch(self, values: Iterable[int]) -> None:
        """Values are touched now."""
        at, now = self.at, self.now
        for value in values:
            at[value] = now

    def follow(self, value: int, other: int, moment: int | None = None) -> None:
        """If `other` was touched, `value` was at the same moment, or at the one given."""
        if value == other and moment is None:
            return
        found = self._resolved(((other, moment),), None)
        if isinstance(found, Inherited) and found.otherwise is None:  # perhaps not: then it keeps what it has
            kept = self.at.get(value, Inherited(((value, None),)))
            found = (
                Inherited(found.choices, kept)
                if isinstance(kept, int)
                else Inherited(tuple(dict.fromkeys((*found.choices, *kept.choices))), kept.otherwise)
            )
        if found is not None:
            self.at[value] = found

    def apply(self, turn: Turn) -> None:
        """A block runs."""
        found: dict[int, Moment] = {}
        for value, moment in turn.uses.items():
            if isinstance(moment, int):
                found[value] = self.now + moment
                continue
            choices = [(other, None if own is None else self.now + own) for other, own in moment.choices]
            otherwise = None if moment.otherwise is None else self.now + moment.otherwise
            if (resolved := self._resolved(choices, otherwise)) is not None:
                found[value] = resolved
        self.at |= found
        self.now += turn.moved

    def postpone(self, turn: Turn, since: int, by: int) -> None:
        """Moves the last uses of values that a block has touched since a moment to a later one, by so many bytes."""
        for value in turn.uses:
            moment = self.at.get(value)
            if isinstance(moment, int):
                if moment > since:
                    self.at[value] = moment + by
            elif moment is not None and moment.otherwise is not None and moment.otherwise > since:
                self.at[value] = Inherited(moment.choices, moment.otherwise + by)

    def _resolved(self, choices: Sequence[tuple[int, int | None]], otherwise: int | None) -> Moment | None:
        """The moment by values that are known here, as far as they are."""
        left: dict[tuple[int, int | None], None] = {}
        for value, own in choices:
            found = self.at.get(value)
            if isinstance(found, Inherited):
                left |= dict.fromkeys((other, inner if own is None else own) for other, inner in found.choices)
                found = found.otherwise
            elif found is None and self.is_open:
                left[value, own] = None
            if found is not None:
                otherwise = found if own is None else own
                break
        return Inherited(tuple(left), otherwise) if left else otherwise


class Direction(Protocol):
    """How uses are followed through a program: from its begin, or from its end."""

    def steps(self, schedule: Schedule) -> Iterable[Step]:
        """A block's steps in the order of the walk."""

    def kernel(self, kernel: Kernel, uses: Uses) -> None:
        """A kernel runs."""

    def branch(self, step: BranchStep, uses: Uses) -> None:
        """The bodies of a branch have run."""

    def enter(self, step: LoopStep, uses: Uses) -> None:
        """A loop is about to run its first turn of the walk."""

    def repeat(self, step: LoopStep, uses: Uses) -> None:
        """A loop goes from its first turn to the second."""

    def leave(self, step: LoopStep, turn: Turn, uses: Uses, since: int) -> None:
        """A loop has run the second turn, which began at `since`: the others follow."""


class Turns:
    """The turns of a program's blocks, each worked out once."""

    def __init__(self, schedule: Schedule, direction: Direction) -> None:
        self._direction = direction
        self._found: dict[int, Turn] = {}  # by the block's identity
        self._schedule = schedule

    @cached_property
    def _homes(self) -> dict[int, int]:
        """Asked for by loops alone."""
        return _homes(self._schedule)

    def of(self, schedule: Schedule) -> Turn:
        """The bytes that one run of a block moves, and when it touches values last."""
        found = self._found.get(id(schedule))
        if found is None:
            uses = Uses(is_open=True)
            self._run(schedule, uses)
            found = self._found[id(schedule)] = Turn(uses.now, uses.at)
        return found

    def enter(self, step: LoopStep, uses: Uses) -> Turn:
        """Goes on to the begin of a loop's second turn; what one turn is."""
        turn = self.of(step.body)
        self._direction.enter(step, uses)
        uses.apply(turn)
        self._direction.repeat(step, uses)
        return turn

    def _run(self, schedule: Schedule, uses: Uses) -> None:
        for step in self._direction.steps(schedule):
            if isinstance(step, Kernel):
                self._direction.kernel(step, uses)
            elif isinstance(step, LoopStep):
                self._loop(step, uses)
            else:
                for body in step.bodies:
                    self._run(body, uses)
                self._direction.branch(step, uses)

    def _loop(self, step: LoopStep, uses: Uses) -> None:
        turn = self.enter(step, uses)
        second = uses.now
        uses.apply(turn)
        self._direction.leave(step, turn, uses, second)
        for value in (*turn.uses, *step.body.inputs, *step.body.outputs):
            if self._homes[value] == id(step.body):
                uses.at.pop(value, None)


def _homes(schedule: Schedule) -> dict[int, int]:
    """For each value the identity of the innermost loop body, or of the program, that all of its uses lie in."""
    around: dict[int, int] = {}  # a body that has ended -> one around it
    homes: dict[int, int] = {}

    def still_open(block: int) -> int:
        if block not in around:
            return block
        passed = []
        while block in around:
            passed.append(block)
            block = around[block]
        around.update(dict.fromkeys(passed, block))
        return block

    def note(values: Sequence[int], block: int) -> None:
        for value in values:
            homes[value] = still_open(homes[value]) if value in homes else block

    def visit(schedule: Schedule, block: int) -> None:
        note(schedule.inputs, block)
        for step in schedule.steps:
            note(step.reads, block)
            if isinstance(step, LoopStep):
                visit(step.body, id(step.body))
                around[id(step.body)] = block
            elif isinstance(step, Kernel):
                note(step.updates, block)
            else:
                for body in step.bodies:
                    visit(body, block)
            note(step.writes, block)
        note(schedule.outputs, block)

    visit(schedule, id(schedule))
    return homes
