"""A pass of the lowering, and the passes of a backend in their order; `pass_tables.py` has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from meshcast.lower.draft import BlockDraft, ProgramDraft

D = TypeVar("D", BlockDraft, ProgramDraft)


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True)  # no slots: a generic class with them cannot be called by its alias for one type
class LoweringPass(Generic[D]):
    """A step of the lowering: its name, what it does and why there, what runs, and for which drafts it does."""

    name: str
    does: str
    run: Callable[[D], None]
    applies: Callable[[D], bool] = _always


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTable:
    """The passes of a backend, in order."""

    ops: tuple[LoweringPass[BlockDraft], ...]  # over a block's ops, until it is decided what is one kernel
    steps: tuple[LoweringPass[BlockDraft], ...]  # over its kernels, loops and branches, bodies lowered
    program: tuple[LoweringPass[ProgramDraft], ...]  # over the whole schedule

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all of them in order."""
        return (*_names(self.ops), *_names(self.steps), *_names(self.program))


def _names(passes: Sequence[LoweringPass[D]]) -> list[str]:
    return [each.name for each in passes]


def run_passes(passes: Sequence[LoweringPass[D]], draft: D) -> None:
    """Runs those that apply, one after the other."""
    for each in passes:
        if each.applies(draft):
            each.run(draft)
