"""`Wiring`: how one level connects its devices, and the ways through it. Each topology is one implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from meshcast.hardware import NetworkLevel
from meshcast.network.fabric.links import Floats, Ints, Paths

Spreading = Literal["spread", "hash"]
DragonflyRoutes = Literal["adaptive", "minimal", "valiant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How flows choose among ways that are equally short.

    Attributes:
        spreading: "spread": each flow uses all of them in equal parts, as packet spraying and many queue pairs do;
            "hash": each flow keeps to one, chosen by a hash of its ends, as ECMP does.
        pxn: On a rail-optimised tree, whether a flow to another rail first goes to its node's device on that rail, over
            the level below (NCCL's PXN), instead of through the spines.
        dragonfly: "minimal": the shortest ways; "valiant": through a third group (or router, inside a group),
            neighbours by way of different ones, which spreads patterns that minimal routes crowd on few links;
            "adaptive": for the flows of an exchange, the one of both whose fullest link has fewer of them.
    """

    spreading: Spreading = "spread"
    pxn: bool = False
    dragonfly: DragonflyRoutes = "adaptive"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPlace:
    """A network level with its place among the others, as its wiring needs it.

    Attributes:
        level: The network level.
        index: Its number, from the inside out.
        devices: Devices of the whole fabric.
        inner: Devices in one domain of the level below; 1 at the innermost.
        routing: How flows choose their ways.
    """

    level: NetworkLevel
    index: int
    devices: int
    inner: int
    routing: Routing

    @property
    def size(self) -> int:
        """Devices in one domain of this level, as far as there are that many."""
        return min(self.level.size, self.devices)

    @property
    def domains(self) -> int:
        """Domains of this level."""
        return -(-self.devices // self.size)


class Wiring(Protocol):
    """The links of one level and the ways over them."""

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Links from each source to its target, two devices of one domain; flows are numbered by their row."""
        ...

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """Links of the trees over which switches add up or multicast: upwards, and the same ones downwards.

        Row i says that device `member[i]` belongs to set `sets[i]`; a link appears once for each set that uses it.
        """
        ...


def hashed(source: Ints, target: Ints, choices: int | Ints) -> Ints:
    """A choice for each flow, equal for equal ends: a 64-bit mix of both numbers (Steele, Lea and Flood, SplitMix)."""
    mixed = source.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + target.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) % np.asarray(choices, np.uint64)).astype(np.int64)


def ones(count: int) -> Floats:
    """The share of flows that are not split."""
    return np.ones(count)
