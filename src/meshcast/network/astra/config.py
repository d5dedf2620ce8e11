"""What ASTRA-sim's system layer is told: how collectives are cut, which algorithm each dimension has, what they cost.

Units are ASTRA-sim's own here, because these values go to and come from its files: a GB of local memory is 10**9 bytes
(one of a link is 2**30), times are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from meshcast.base import UnsupportedError, UsageError, nearest
from meshcast.hardware import AstraNetwork

AstraKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
AstraBackend = Literal["Unaware", "Aware"]
Pattern = Literal["ring", "direct", "halvingDoubling", "doubleBinaryTree"]

ASTRA_KINDS: tuple[AstraKind, ...] = get_args(AstraKind)
ASTRA_BACKENDS: tuple[AstraBackend, ...] = get_args(AstraBackend)
# What a system file may name, beside a window after either kind of "direct": the pattern, and whether it takes all
# dimensions for one.
IMPLEMENTATIONS: dict[str, tuple[Pattern, bool]] = {
    "ring": ("ring", False),
    "oneRing": ("ring", True),
    "direct": ("direct", False),
    "oneDirect": ("direct", True),
    "halvingDoubling": ("halvingDoubling", False),
    "oneHalvingDoubling": ("halvingDoubling", True),
    "doubleBinaryTree": ("doubleBinaryTree", False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """An algorithm as a system file names it.

    Attributes:
        pattern: Who sends to whom.
        whole: Whether it takes all dimensions for one.
        window: Messages in flight, for "direct"; None for all at once.
    """

    pattern: Pattern
    whole: bool
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSystem:
    """How the system layer runs collectives.

    Attributes:
        all_reduce: The algorithm of each dimension, by ASTRA-sim's names; so for the other collectives.
        splits: Chunks that a collective is cut into ("preferred-dataset-splits").
        endpoint_delay_ns: Between NPU and network, for every message.
        active_chunks: Chunks that work in a dimension at the same time ("active-chunks-per-dimension").
        optimisation: "localBWAware" scatters through the dimensions before the last and gathers back; "baseline"
            reduces the whole in every dimension.
        scheduling: Which of several waiting collectives is first.
        local_memory_bandwidth: 10**9 bytes/s at which a reduction reads twice and writes once.
        others: What else the file says, by its keys: carried along, of no effect on one collective.
    """

    all_reduce: tuple[str, ...] = ()
    all_gather: tuple[str, ...] = ()
    reduce_scatter: tuple[str, ...] = ()
    all_to_all: tuple[str, ...] = ()
    splits: int
    endpoint_delay_ns: int = 10
    active_chunks: int = 1
    optimisation: Literal["baseline", "localBWAware"] = "baseline"
    scheduling: Literal["LIFO", "FIFO", "EXPLICIT"] = "LIFO"
    local_memory_bandwidth: float | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def names(self, kind: AstraKind) -> tuple[str, ...]:
        """The algorithm of each dimension for a collective."""
        return cast("tuple[str, ...]", getattr(self, kind))


def implementation(name: str) -> Implementation:
    """The algorithm that a name of a system file stands for.

    Raises:
        UsageError: There is no such algorithm.
    """
    if name in IMPLEMENTATIONS:
        pattern, whole = IMPLEMENTATIONS[name]
        return Implementation(pattern=pattern, whole=whole)
    for direct in ("direct", "oneDirect"):
        window = name.removeprefix(direct)
        if window != name and window.isdecimal() and int(window) > 0:
            return Implementation(pattern="direct", whole=IMPLEMENTATIONS[direct][1], window=int(window))
    raise UsageError(f"no collective algorithm {name!r} in ASTRA-sim", fix=nearest(name, IMPLEMENTATIONS))


def implementations(network: AstraNetwork, system: AstraSystem, kind: AstraKind) -> tuple[Implementation, ...]:
    """The algorithms of a collective, one for each dimension, or a single one that takes all for one.

    Raises:
        UsageError: Their number is not that of the dimensions.
        UnsupportedError: A dimension's size or the collective is none that an algorithm works for.
    """
    found = tuple(map(implementation, system.names(kind)))
    if not found or (not found[0].whole and len(found) != len(network.dimensions)):
        key = f"{kind.replace('_', '-')}-implementation"
        raise UsageError(
            f"{key} names {len(found)} algorithms, the network has {len(network.dimensions)} dimensions",
            fix=f"give {key} one algorithm for each dimension",
        )
    if found[0].whole:
        found = found[:1]
    for at, chosen in enumerate(found):
        _check(chosen, network.npus if chosen.whole else network.dimensions[at].npus, kind)
    return found


def _check(chosen: Implementation, npus: int, kind: AstraKind) -> None:
    if chosen.pattern in ("halvingDoubling", "doubleBinaryTree") and npus & (npus - 1):
        raise UnsupportedError(
            f"ASTRA-sim's {chosen.pattern} pairs a power of two of NPUs, the dimension has {npus}",
            fix="use ring or direct for this dimension",
        )
    if chosen.pattern == "halvingDoubling" and kind == "all_to_all":
        raise UnsupportedError("ASTRA-sim has no halvingDoubling for all-to-all", fix="use ring or direct")
