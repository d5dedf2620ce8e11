"""Dragonflies: groups of routers that are all connected to each other, and links from every group to every other.

After Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology" (2008). A router has p devices,
a link to each of the a - 1 other routers of its group, and h links to other groups. The a h links that leave a group
go to the other groups in turn, so that each pair of groups has floor(a h / (g - 1)) of them. A minimal route is at most
local, global, local; a Valiant route makes two minimal ones, by way of a third group or router.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.network.fabric.links import NONE, Ints, Parts, Paths
from meshcast.network.fabric.wiring import LevelPlace, Routing, hashed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dragonfly:
    """Link numbers by arithmetic: routers and groups are numbered through all domains.

    Attributes:
        up, down: Each device's port.
        per_router, routers, groups: The shape.
        pairs: Links between each pair of groups.
        local: First link between routers of a group; router r to the k-th of its group is `local + r * routers + k`.
        far: First link between groups; the i-th from group G at offset d is `far + (G * groups + d) * pairs + i`.
    """

    up: Ints
    down: Ints
    per_router: int
    routers: int
    groups: int
    pairs: int
    local: int
    far: int
    routing: Routing

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Minimal routes, Valiant's, or of these two the one whose fullest link has fewer of these flows."""
        here, there = source // self.per_router, target // self.per_router
        ends = [self.up[source], self.down[target]]
        minimal = self._minimal(here, there, source, target)
        if self.routing.dragonfly == "minimal":
            return Paths.of_hops([*ends, *minimal])
        turn = self._turn(here, there, source, target)
        around = [*self._minimal(here, turn, source, target), *self._minimal(turn, there, source, target)]
        if self.routing.dragonfly == "adaptive" and _fullest(minimal) <= _fullest(around):
            return Paths.of_hops([*ends, *minimal])
        return Paths.of_hops([*ends, *around])

    def _turn(self, here: Ints, there: Ints, source: Ints, target: Ints) -> Ints:
        """The router that a Valiant route goes by: where it enters a third group, or a third one of its own group."""
        # Inside a group neighbours turn at different routers, so that they do not crowd on the link between two.
        first, second = here // self.routers, there // self.routers
        turn = first * self.routers + (here + 1 + source % self.per_router) % self.routers
        if self.groups > 2:
            # One of the other groups, counted on from the source's, without the target's.
            offset = 1 + source % (self.groups - 2)
            offset += offset >= (second - first) % self.groups
            middle = first // self.groups * self.groups + (first + offset) % self.groups
            turn = np.where(first != second, self._far_end(first, middle, source, target), turn)
        else:
            turn = np.where(first != second, there, turn)
        return np.where(here == there, there, turn)

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """No rule is known for where the routers of a dragonfly would add.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "in-network reduction on a dragonfly is not modelled", fix="choose another algorithm for this level"
        )

    def _minimal(self, here: Ints, there: Ints, source: Ints, target: Ints) -> list[Ints]:
        """Columns of links from router to router: local, global, local."""
        first, second = here // self.routers, there // self.routers
        across = first != second
        leaving = np.where(across, self._near_end(first, second, source, target), there)
        entering = np.where(across, self._far_end(first, second, source, target), there)
        number = hashed(source, target, self.pairs)
        offset = (second - first) % self.groups
        far = self.far + (first * self.groups + offset) * self.pairs + number
        return [self._local(here, leaving), np.where(across, far, NONE), self._local(entering, there)]

    def _local(self, here: Ints, there: Ints) -> Ints:
        return np.where(here == there, NONE, self.local + here * self.routers + there % self.routers)

    def _near_end(self, group: Ints, other: Ints, source: Ints, target: Ints) -> Ints:
        """The router that a flow leaves its group by."""
        offset = (other - group) % self.groups
        return group * self.routers + _owner(offset, hashed(source, target, self.pairs), self)

    def _far_end(self, group: Ints, other: Ints, source: Ints, target: Ints) -> Ints:
        """The router that it enters the other group by: the owner of the same link there."""
        offset = (group - other) % self.groups
        return other * self.routers + _owner(offset, hashed(source, target, self.pairs), self)


def _fullest(hops: list[Ints]) -> int:
    """Flows on the link between routers that most of them use."""
    used = np.concatenate(hops)
    return int(np.bincount(used[used != NONE]).max(initial=0))


def _owner(offset: Ints, number: Ints, shape: Dragonfly) -> Ints:
    """The router of a group that has its `number`-th link to the group at an offset: links are dealt out in turn."""
    slot = number * (shape.groups - 1) + np.maximum(offset - 1, 0)
    return slot * shape.routers // max(1, shape.pairs * (shape.groups - 1))


def dragonfly(parts: Parts, place: LevelPlace) -> Dragonfly:
    """All routers of the groups that the devices reach into, and their links."""
    level = place.level
    per_router, routers, _ = level.dims
    in_group = per_router * routers
    groups = -(-place.size // in_group)  # of one domain, as far as devices reach
    group_count = groups * place.domains
    pairs = level.global_links * routers // (groups - 1) if groups > 1 else 1
    nodes = parts.nodes(f"{level.name} router", group_count * routers)
    devices = np.arange(place.devices)
    # Domains hold whole groups, so that a device's router is found by division alone.
    router = nodes[devices // per_router]
    index = place.index
    up, down = parts.join(
        devices, router, bandwidth=level.bandwidth, latency_s=level.latency_s / 2, level=index, lanes=level.links
    )
    source = np.repeat(np.arange(group_count * routers), routers)
    target = source // routers * routers + np.tile(np.arange(routers), group_count * routers)
    rate = level.link_bandwidth
    local = parts.connect(
        nodes[source], nodes[target], bandwidth=np.where(source == target, 0.0, rate), latency_s=0.0, level=index
    )
    shape = Dragonfly(
        up=up, down=down, per_router=per_router, routers=routers, groups=groups, pairs=pairs,
        local=int(local[0]), far=int(local[-1]) + 1, routing=place.routing,
    )  # fmt: skip
    group, offset, number = (
        column.ravel()
        for column in np.meshgrid(np.arange(group_count), np.arange(groups), np.arange(pairs), indexing="ij")
    )
    other = group // groups * groups + (group + offset) % groups
    near = group * routers + _owner(offset, number, shape)
    far = other * routers + _owner((groups - offset) % groups, number, shape)
    parts.connect(nodes[near], nodes[far], bandwidth=np.where(offset == 0, 0.0, rate), latency_s=0.0, level=index)
    return shape
