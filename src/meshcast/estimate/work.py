"""What one kernel takes on a machine: what the models of every kind of machine answer with."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.base import larger, made_quickly, smaller
from meshcast.estimate.explanation import Term


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWork:
    """Seconds in all, by what computes, and by the memory.

    `compute` is what keeps cores or arrays busy; of it `computing` is what arithmetic alone takes, all of it unless
    something else is said: they load, store, shuffle and address as well. `fixed` is what the kernel takes however small
    it is; by default all beyond the longer of compute and memory.
    """

    time: float
    compute: float = 0.0
    memory: float = 0.0
    computing: float | None = None
    fixed: float | None = None
    formula: str = ""  # that gave the time
    terms: tuple[Term, ...] = ()  # of the formula, where the machine is asked to explain

    @property
    def arithmetic(self) -> float:
        """Seconds of `compute` that are arithmetic."""
        return self.compute if self.computing is None else self.computing

    @property
    def overhead(self) -> float:
        """Seconds of `fixed` that neither compute nor memory covers."""
        beyond = larger(0.0, self.time - larger(self.compute, self.memory))
        return beyond if self.fixed is None else smaller(self.fixed, beyond)
