"""Which options a trace heeds: a trace has decided already what runs, where and in which order.

Every field of `Options` stands in one of the tables, so that none is passed over without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from meshcast.base import UsageError
from meshcast.network import OPTIMISE
from meshcast.options import Options

# Heeded however durations come about; `channels` as 0 (the trace's own) or 1, `placement` (below) as a file.
HEEDED = frozenset({"on", "durations", "levers", "what_if", "approximate", "channels", "conditions", "written"})
# Heeded by what is worked out, and by nothing that is replayed.
HEEDED_BY_ESTIMATES: Mapping[str, str] = {
    "fidelity": "--fidelity",
    "profile": "--profile",
    "simulator": "--simulator",
    "network": "--network",
    "placement": "--placement",
    "fabric": "--fabric",
    "beside": "--beside",
    "contention": "--contention",
    "clocks": "--clocks",
    "data": "--data",
}
# Not heeded: what says so on the command line.
REFUSED: Mapping[str, str] = {
    "devices": "--devices",
    "mesh": "--mesh",
    "plan": "--plan",
    "settings": "--set",
    "dims": "--dim",
    "trip_counts": "--trip-count",
    "indices": "--indices",
    "partitioner": "--partitioner",
    "lowering": "--lowering",
    "compile_limit": "--compile-limit",
    "host": "--host",
    "scheduler": "--scheduler",
    "overlap": "--overlap",
    "attention": "--stack",
    "context_attention": "--stack",
    "fusion": "--stack",
    "attention_library": "--stack",
    "layers": "--stack",
    "ragged": "--stack",
    "host_costs": "--stack",
    "brought": "--stack",
}


def check_asked(options: Options) -> None:
    """Refuses options that a trace cannot heed.

    Raises:
        UsageError: One is given.
    """
    differing = options.differing
    # What a stack brings beside its own fields is told by the stack.
    by_stack = any(name in differing for name, flag in REFUSED.items() if flag == "--stack")
    for name, flag in REFUSED.items():
        if name in differing:
            raise UsageError(
                "a trace has its ranks, sizes, kernels and their order already",
                where="--stack" if by_stack and name in ("scheduler", "overlap") else flag,
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
    yield from (flag for name, flag in HEEDED_BY_ESTIMATES.items() if name in options.differing)
    if options.network.conditions.links:
        yield "--link"
    if options.network.conditions.background:
        yield "--background"
