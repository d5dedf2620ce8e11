"""Levels of one switch a domain (NVSwitch, NVL72, a data-centre network taken as one), and of links between all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.network.fabric.links import Ints, Parts, Paths
from meshcast.network.fabric.wiring import LevelPlace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Star:
    """Every device on the switch of its domain: the switch itself never blocks, only the devices' ports do."""

    up: Ints
    down: Ints

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Up to the switch and down to the target."""
        return Paths.of_hops([self.up[source], self.down[target]])

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """Every member's own port."""
        return self.up[member], self.down[member]


def star(parts: Parts, place: LevelPlace) -> Star:
    """A switch for each domain, with a port for each device that holds all of its links at this level."""
    switches = parts.nodes(f"{place.level.name} switch", place.domains)
    devices = np.arange(place.devices)
    switch = switches[devices // place.size]
    level, half = place.level, place.level.latency_s / 2
    up, down = parts.join(
        devices, switch, bandwidth=level.bandwidth, latency_s=half, level=place.index, lanes=level.links
    )
    return Star(up=up, down=down)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllPairs:
    """A link from every device to every other of its domain; `size` devices a domain."""

    size: int
    first: int

    def paths(self, source: Ints, target: Ints) -> Paths:
        """The link between the two."""
        return Paths.of_hops([self.first + source * self.size + target % self.size])

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """There is no switch that could add.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "in-network reduction needs switches, and here every pair has a link of its own",
            fix="choose another algorithm than in-network reduction",
        )


def all_pairs(parts: Parts, place: LevelPlace) -> AllPairs:
    """Links between all pairs: a device's links, shared out over the others of a whole domain."""
    size, level = place.size, place.level
    source = np.repeat(np.arange(place.devices), size)
    target = source // size * size + np.tile(np.arange(size), place.devices)
    # A row for each pair, the device itself among them, so that a link is found by arithmetic. Rows to itself or to a
    # device beyond the last are never asked for; they have no rate, and lead nowhere.
    real = (source != target) & (target < place.devices)
    bandwidth = np.where(real, level.bandwidth / max(1, level.size - 1), 0.0)
    first = parts.connect(
        source,
        np.where(real, target, source),
        bandwidth=bandwidth,
        latency_s=level.latency_s,
        level=place.index,
        lanes=max(1, level.links // max(1, level.size - 1)),
    )
    return AllPairs(size=size, first=int(first[0]))
