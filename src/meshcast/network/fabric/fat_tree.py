"""Fat trees, plain or rail-optimised, of as many tiers as the devices need, with oversubscription above the leaves.

A leaf switch of radix k with oversubscription o has k o / (1 + o) ports to devices and the others upwards; the tiers
above are not oversubscribed. Two tiers end at k leaves, three at k^2 / 2, and so on. After Al-Fares, Loukissas and
Vahdat, "A scalable, commodity data center network architecture" (2008). On a rail-optimised tree the devices of a node
are spread over as many leaves, the i-th of every node on a leaf of rail i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshcast.network.fabric.links import NONE, Ints, Parts, Paths
from meshcast.network.fabric.wiring import LevelPlace, hashed
from meshcast.network.leaves import leaf_keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tier:
    """Switches of one tier: to which one each below belongs, and the links between, by lower switch and plane."""

    parent: Ints
    up: Ints
    down: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FatTree:
    """Ports of the devices, their leaves and rails, the tiers above, and the planes that a flow is hashed onto."""

    up: Ints
    down: Ints
    leaf: Ints
    tiers: tuple[Tier, ...]
    planes: int
    rail: Ints

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Up to the lowest switch that both are below, and down."""
        plane = hashed(source, target, self.planes)
        hops = [self.up[source], self.down[target]]
        here, there = self.leaf[source], self.leaf[target]
        for tier in self.tiers:
            apart = here != there
            hops.append(np.where(apart, tier.up[here, plane], NONE))
            hops.append(np.where(apart, tier.down[there, plane], NONE))
            here, there = tier.parent[here], tier.parent[there]
        return Paths.of_hops(hops)

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """The ports of the members, and for each set once the links that join their leaves.

        A set stays in the plane of its number: a tree of switches adds in one place.
        """
        up, down = [self.up[member]], [self.down[member]]
        here = self.leaf[member]
        for tier in self.tiers:
            known = np.unique(np.stack([sets, here]), axis=1)
            number, count = np.unique(known[0], return_counts=True)
            several = np.isin(known[0], number[count > 1])
            joined, switch = known[0][several], known[1][several]
            plane = hashed(joined, joined, self.planes)
            up.append(tier.up[switch, plane])
            down.append(tier.down[switch, plane])
            here = tier.parent[here]
        return np.concatenate(up), np.concatenate(down)


def fat_tree(parts: Parts, place: LevelPlace) -> FatTree:
    """The leaves that the devices need, and tiers above them until one switch joins all of a domain."""
    level = place.level
    devices = np.arange(place.devices)
    domain = devices // place.size
    rail = devices % place.size % place.inner % min(level.rails, place.inner)
    ports = level.devices_per_leaf
    leaf_key = leaf_keys(level, devices, inner=place.inner, size=place.size)
    _, first, leaf = np.unique(leaf_key, return_index=True, return_inverse=True)
    switches = parts.nodes(f"{level.name} leaf", len(first))
    up, down = parts.join(
        devices, switches[leaf], bandwidth=level.bandwidth, latency_s=level.latency_s / 2, level=place.index,
        lanes=level.links,
    )  # fmt: skip
    uplinks = max(1, round(ports / level.oversubscription))
    planes = uplinks if place.routing.spreading == "hash" else 1
    # The rate that leaves a leaf upwards is that of all ports it has, used or not.
    rate = ports * level.bandwidth / level.oversubscription
    tiers: list[Tier] = []
    below, domain_of = np.repeat(switches[:, None], planes, axis=1), domain[first]
    while len(np.unique(domain_of)) < len(domain_of):
        parent, domain_of = _grouped(domain_of, level.radix)
        count = len(domain_of)
        names = f"{level.name} {'spine' if not tiers else f'tier {len(tiers) + 2}'}"
        above = parts.nodes(names, count * planes).reshape(count, planes)
        lanes = max(1, uplinks // planes)
        shape = below.shape
        links = parts.join(
            below.ravel(), above[parent].ravel(), bandwidth=rate / planes, latency_s=0.0, level=place.index, lanes=lanes
        )
        tiers.append(Tier(parent=parent, up=links[0].reshape(shape), down=links[1].reshape(shape)))
        # A switch of the next tier has the uplinks of all that it can have below it.
        rate, uplinks, below = rate * (level.radix // 2), uplinks * (level.radix // 2), above
    return FatTree(up=up, down=down, leaf=leaf, tiers=tuple(tiers), planes=planes, rail=rail)


def _grouped(domain: Ints, radix: int) -> tuple[Ints, Ints]:
    """(the parent of each switch, the domain of each parent): all of a domain under one parent if its ports suffice."""
    start = np.searchsorted(domain, domain)
    counts = np.bincount(domain)
    inside = np.arange(len(domain)) - start
    fits = counts[domain] <= radix
    key = domain * (len(domain) + 1) + np.where(fits, 0, inside // max(2, radix // 2))
    _, first, parent = np.unique(key, return_index=True, return_inverse=True)
    return parent, domain[first]
