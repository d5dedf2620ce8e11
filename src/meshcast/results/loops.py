"""Loops that end on data: what a turn of each takes, so that a step of any number of turns follows.

The step is `fixed + sum over loops: per_turn x entered x turns`, where a loop inside another is entered once for each turn of
that one: the turns of loops in each other multiply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from meshcast.base import format_time, format_whole
from meshcast.results.sections import Section, columns


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopShare:
    """A loop that ends on data.

    Attributes:
        name: Its label, `while#1`, by which `--trip-count` names it.
        source: The name of the op that it comes from; empty where the program has none.
        turns: How often its body runs each time that it is entered, in this prediction.
        turns_assumed: Whether nobody said so.
        turns_at_most: The most turns that its condition allows; None where that depends on data alone.
        turns_range: The range that was asked for; None where it was one number.
        inside: The loops of this kind that it is in, the outermost first.
        entered: How often it is entered in a step.
        per_turn_s: Seconds of one more turn, less the turns of loops inside it; None where the step has no time.
        per_turn_energy_j: Joules of one more turn likewise.
        per_turn_communication_bytes: Bytes that one more turn sends likewise.
    """

    name: str
    source: str
    turns: int
    turns_assumed: bool
    turns_at_most: int | None = None
    turns_range: tuple[int, int] | None = None
    inside: tuple[str, ...] = ()
    entered: int = 1
    per_turn_s: float | None = None
    per_turn_energy_j: float | None = None
    per_turn_communication_bytes: float | None = None

    @property
    def all_turns(self) -> int:
        """Turns of a whole step."""
        return self.turns * self.entered


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoops:
    """All loops of a program that end on data.

    Attributes:
        loops: Each of them, in the program's order.
        fixed_s: Seconds of the step besides their turns; None where the step has no time.
        step_range_s: The step at the lower and at the upper ends of the ranges that were asked for; None without any.
        energy_range_j: Joules likewise.
        communication_range_bytes: Bytes sent likewise.
    """

    loops: tuple[LoopShare, ...]
    fixed_s: float | None = None
    step_range_s: tuple[float, float] | None = None
    energy_range_j: tuple[float, float] | None = None
    communication_range_bytes: tuple[float, float] | None = field(default=None)

    def to_json(self) -> dict[str, Any]:
        """Fields of a prediction: `loops`, and what follows from them."""
        found: dict[str, Any] = {
            "loops": [_plain(loop) for loop in self.loops],
            "step_time_fixed_s": self.fixed_s,
        }
        for name, pair in (
            ("step_time_range_s", self.step_range_s),
            ("energy_range_j", self.energy_range_j),
            ("communication_range_bytes", self.communication_range_bytes),
        ):
            if pair is not None:
                found[name] = list(pair)
        return found

    @property
    def formula(self) -> str:
        """The step as a formula in the loops' turns, in words for people."""
        return " + ".join((format_time(self.fixed_s or 0.0), *self._terms()))

    def _terms(self) -> Iterator[str]:
        turns = {loop.name: loop.turns for loop in self.loops}
        for loop in self.loops:
            if not loop.entered:
                continue
            around = 1
            for name in loop.inside:
                around *= turns[name]
            counted = loop.entered // around if around else 0  # by loops whose turns the program says
            factors = [format_time(loop.per_turn_s or 0.0), *([format_whole(counted)] if counted > 1 else [])]
            yield " x ".join((*factors, *loop.inside, loop.name))

    def sections(self) -> list[Section]:
        """The table of loops, with the formula of the step."""
        rows = [
            (
                loop.name,
                _turns(loop),
                format_whole(loop.entered),
                "" if loop.per_turn_s is None else format_time(loop.per_turn_s),
                "" if loop.per_turn_s is None else format_time(loop.per_turn_s * loop.all_turns),
                loop.source,
            )
            for loop in self.loops
        ]
        title = "Loops that end on data"
        if self.fixed_s is not None:
            title += f": step = {self.formula}"
        heads = columns("loop", "turns", ">entered", ">a turn", ">in all", "~source")
        return [Section(title=title, columns=heads, rows=rows, note=self._note())]

    def _note(self) -> str:
        said = []
        if any(loop.inside for loop in self.loops):
            said.append("a turn is told without loops inside it, whose turns multiply")
        if self.step_range_s is not None:
            low, high = map(format_time, self.step_range_s)
            said.append(f"over the range of turns the step takes {low} to {high}")
        if any(loop.turns_assumed for loop in self.loops):
            said.append("--trip-count NAME=N, or NAME=5..50, says how many turns there are")
        return "; ".join(said)


def _plain(loop: LoopShare) -> dict[str, Any]:
    """A loop as JSON has it."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(loop).items()}


def _turns(loop: LoopShare) -> str:
    said = format_whole(loop.turns)
    if loop.turns_range is not None:
        said += " ({}..{})".format(*loop.turns_range)
    if loop.turns_assumed:
        said += " (assumed: its most)" if loop.turns_at_most is not None else " (assumed)"
    elif loop.turns_at_most is not None:
        said += f" of {format_whole(loop.turns_at_most)} at most"
    return said
