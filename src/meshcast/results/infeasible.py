"""`Infeasible`: why something cannot run, by how much, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change that was predicted where something does not fit: what makes it, and what is needed with it.

    Attributes:
        change: What it is, in words.
        flag: What makes it on the command line, in place of the same flags where they are there already.
        demand: The demand of the resource, with it.
        fits: Whether that is enough.
    """

    change: str
    flag: str
    demand: float
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why a program cannot run as asked: what it needs, what there is, and what would close the gap.

    `levers` say in words what takes most of it; `fixes` are changes that were predicted, those that are enough first.
    """

    resource: str
    demand: float
    bound: float
    levers: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()

    @property
    def gap(self) -> float:
        """The amount of the resource that is missing: demand less bound."""
        return self.demand - self.bound
