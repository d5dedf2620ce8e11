"""Deadlocks of a program, or of several that run side by side: what their ranks post, matched before anything is timed."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.programs import Program
from meshcast.simulate import Ints, check_matching
from meshcast.workload import program_sequence, rank_sequences


def check_program(program: Program) -> None:
    """Makes sure that the collectives of a program match on all ranks.

    Raises:
        UsageError: Some ranks would wait for ever, or a message has no partner.
    """
    check_matching(rank_sequences(program), program.devices, where=program.name)


def check_programs(programs: Sequence[tuple[Program, Ints]], ranks: int, *, where: str) -> None:
    """Makes sure that programs that different ranks run post matching collectives.

    Args:
        programs: Each with the ranks that run it; collectives name ranks of the whole.
        ranks: How many there are in all.
        where: What to call them together.

    Raises:
        UsageError: Some ranks would wait for ever.
    """
    check_matching([program_sequence(program, own, ranks) for program, own in programs], ranks, where=where)
