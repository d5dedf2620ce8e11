"""Loops that end on data: how often their bodies run is told, or assumed, and is said wherever an answer depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshcast.base import UsageError

EVERY = "*"  # the name by which a count is given to all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoop:
    """A loop whose number of turns is no constant of the program.

    Attributes:
        label: Its name in the program, `while#2`, by order of reading.
        source: The name of the op that it comes from, such as `jit(solve)/while`; empty where the program has no such names.
        turns: How often its body runs each time that it is entered.
        given: The name under which the user gave that; empty where it is assumed.
        at_most: The most turns that its own condition allows; None where that depends on data alone.
    """

    label: str
    source: str
    turns: int
    given: str = ""
    at_most: int | None = None

    @property
    def assumed(self) -> bool:
        """Whether nobody said how often it runs."""
        return not self.given

    @property
    def called(self) -> str:
        """Its label, and where it comes from."""
        return f"{self.label} ({self.source})" if self.source else self.label


def data_loop(label: str, source: str, at_most: int | None, given: Mapping[str, int]) -> DataLoop:
    """A loop with the turns that are given for it, by its label, by its source or the end of that, or for all loops.

    Where nothing is given, the most turns that its condition allows are assumed, and one where that allows any number.

    Args:
        label: Its label.
        source: The op that it comes from.
        at_most: The most turns that its condition allows.
        given: Turns by name.
    """
    name = next((name for name in given if _names(name, label, source)), EVERY if EVERY in given else "")
    assumed = 1 if at_most is None else at_most
    return DataLoop(label=label, source=source, turns=given[name] if name else assumed, given=name, at_most=at_most)


def _names(name: str, label: str, source: str) -> bool:
    return name == label or (bool(source) and (name == source or source.endswith(f"/{name}")))


def refuse_unused(given: Mapping[str, int], loops: Sequence[DataLoop], counted: int, *, where: str) -> None:
    """A count that changes nothing misleads: whoever gave it believes that it counts.

    Args:
        given: Trip counts by name; `EVERY` for all loops that need one.
        loops: Those that do.
        counted: How many have theirs in the program.
        where: The program.

    Raises:
        UsageError: A count that no loop needs.
    """
    used = {loop.given for loop in loops}
    unused = [(name, count) for name, count in given.items() if name not in used]
    if not unused:
        return
    said = ", ".join(f"{count}" if name == EVERY else f"{name}={count}" for name, count in unused)
    asking = ", ".join(loop.called for loop in loops)
    raise UsageError(
        f"--trip-count {said} has no effect: no loop asks for it",
        where=where,
        fix=f"loops that need a count: {asking or 'none'} ({counted} have theirs in the program)",
    )


def assumed_turns(loops: Sequence[DataLoop]) -> tuple[str, ...]:
    """A sentence on the loops whose turns are assumed; none where all are known."""
    found = [loop for loop in loops if loop.assumed]
    if not found:
        return ()
    said = ", ".join(f"{_turns(loop)} of {loop.called}" for loop in found)
    return (f"assumed: {said}, which end{'s' if len(found) == 1 else ''} on data; --trip-count NAME=N says otherwise",)


def _turns(loop: DataLoop) -> str:
    if loop.at_most is not None:
        return f"all {loop.turns:,} turns that its condition allows" if loop.turns != 1 else "the only turn"
    return "one turn"
