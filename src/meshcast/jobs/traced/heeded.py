"""Which options a trace heeds: a trace has decided already what runs, where and in which order.

Every option's declaration says what becomes of it (`Declaration.of_traces`), by default that it is refused, so that none is
passed over without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshcast.base import UsageError
from meshcast.network import OPTIMISE
from meshcast.options import OfTraces, Options, option_places

STACK_FLAG = "--stack"  # says options that have no flag of their own
BROUGHT = "brought"  # where options keep that a stack brought some


def flags_by_treatment(treatment: OfTraces) -> dict[str, str]:
    """Options that traces treat in a way, by their flat names, with what says them on the command line."""
    found = {}
    for name, place in option_places().items():
        said = place.field.declaration
        if said.of_traces == treatment:
            found[name] = STACK_FLAG if STACK_FLAG in said.no_flag else said.where
    return found | ({BROUGHT: STACK_FLAG} if treatment == "refused" else {})


def check_asked(options: Options) -> None:
    """Refuses options that a trace cannot heed.

    Raises:
        UsageError: One is given.
    """
    differing = options.differing
    # What a stack brings beside its own fields is told by the stack.
    refused = flags_by_treatment("refused")
    by_stack = any(name in differing for name, flag in refused.items() if flag == STACK_FLAG)
    for name, flag in refused.items():
        if name in differing:
            raise UsageError(
                "a trace has its ranks, sizes, kernels and their order already",
                where=STACK_FLAG if by_stack and name in ("scheduler", "overlap") else flag,
                fix="leave it out",
            )
    if options.run.channels not in (0, 1):
        raise UsageError(
            f"a trace says itself what runs on which of its channels, and not on {options.run.channels}", where="--channels",
            fix="0, the default, leaves communication on the trace's own channels; 1 puts all of a rank's on one",
        )  # fmt: skip
    if options.network.placement == OPTIMISE:
        raise UsageError(
            "placements are chosen by what a program sends, of which a trace keeps one rank's part", where="--placement",
            fix="name a file with the device of each rank, or predict the program that the trace is of",
        )  # fmt: skip
    if options.network.conditions.kinds:
        raise UsageError(
            "devices of another kind cannot run a trace: its kernels are of one", where="--slow",
            fix="give a share of the speed instead, as in 17=0.8, or predict the program that the trace is of",
        )  # fmt: skip


def without_effect(options: Options) -> Iterator[str]:
    """Flags that are given and mean nothing to durations that are replayed."""
    yield from (flag for name, flag in flags_by_treatment("estimates").items() if name in options.differing)
    if options.network.conditions.links:
        yield "--link"
    if options.network.conditions.background:
        yield "--background"
