"""`Fabric`: devices, switches and directed links of a cluster as a graph, and the ways of flows through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meshcast.base import InfeasibleError
from meshcast.hardware import HEALTHY, Cluster, Conditions, NetworkLevel, check_conditions
from meshcast.network.fabric.dragonfly import dragonfly
from meshcast.network.fabric.fat_tree import FatTree, fat_tree
from meshcast.network.fabric.links import Floats, Ints, Links, Parts, Paths
from meshcast.network.fabric.pcie import pcie
from meshcast.network.fabric.shortest import Unreachable, shortest_paths
from meshcast.network.fabric.state import capacities
from meshcast.network.fabric.switched import all_pairs, star
from meshcast.network.fabric.torus import Torus, torus
from meshcast.network.fabric.wiring import LevelPlace, Routing, Wiring

WIRINGS: dict[str, Callable[[Parts, LevelPlace], Wiring]] = {
    "switch": star, "full": all_pairs, "ring": torus, "torus": torus,
    "fat-tree": fat_tree, "dragonfly": dragonfly, "pcie": pcie,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fabric:
    """A graph of links. Nodes 0 to `devices - 1` are the devices, the others switches, routers and the like.

    Attributes:
        name: What it was made from.
        devices: Number of devices.
        levels: The network levels, from the inside out.
        node_names: Every node in words.
        links: All links, healthy.
        capacity: bytes/s that each link has left under the conditions; 0 where it failed.
        wirings: The ways of each level; None where only the graph knows them.
        routing: How flows choose among equal ways.
    """

    name: str
    devices: int
    levels: tuple[NetworkLevel, ...]
    node_names: tuple[str, ...]
    links: Links
    capacity: Floats
    wirings: tuple[Wiring | None, ...]
    routing: Routing

    def inner_size(self, level: int) -> int:
        """Devices in one part of a level: a domain of the next smaller level below, or a single device."""
        smaller = (below.size for below in self.levels[:level] if below.size < self.levels[level].size)
        return max(smaller, default=1)

    def level_index(self, name: str) -> int | None:
        """The number of the level with this name."""
        return next((index for index, level in enumerate(self.levels) if level.name == name), None)

    def level_between(self, source: Ints, target: Ints) -> Ints:
        """The innermost level whose domains hold both devices of each pair; the outermost holds all."""
        found = np.full(len(source), max(0, len(self.levels) - 1))
        for index in reversed(range(len(self.levels) - 1)):
            size = self.levels[index].size
            found[source // size == target // size] = index
        return found

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Links of each flow, by the rules of the level between its ends; around links that failed.

        Raises:
            InfeasibleError: Failed links leave two devices without any way.
        """
        between = self.level_between(source, target)
        parts: list[Paths] = []
        by_graph = np.zeros(len(source), bool)
        for index in np.unique(between):
            flows = np.flatnonzero(between == index)
            wiring = self.wirings[index]
            if wiring is None or (isinstance(wiring, Torus) and wiring.twisted):
                by_graph[flows] = True
            else:
                parts.append(self._ruled(wiring, int(index), source[flows], target[flows]).numbered(flows))
        ruled = Paths.joined(parts)
        dead = self.capacity[ruled.link] <= 0
        if dead.any():
            by_graph[ruled.flow[dead]] = True
            alive = ~by_graph[ruled.flow]
            ruled = Paths(flow=ruled.flow[alive], link=ruled.link[alive], share=ruled.share[alive])
        if not by_graph.any():
            return ruled
        flows = np.flatnonzero(by_graph)
        return Paths.joined([ruled, self._searched(source[flows], target[flows]).numbered(flows)])

    def _ruled(self, wiring: Wiring, index: int, source: Ints, target: Ints) -> Paths:
        if not (self.routing.pxn and index and isinstance(wiring, FatTree)):
            return wiring.paths(source, target)
        # PXN: over the level below to the node's device on the target's rail, then along that rail.
        inner = self.inner_size(index)
        relay = source - source % inner + target % inner
        relay = np.where((wiring.rail[source] != wiring.rail[target]) & (relay < self.devices), relay, source)
        moved = np.flatnonzero(relay != source)
        below = self.wirings[index - 1]
        if below is None or not len(moved):
            return wiring.paths(relay, target)
        return Paths.joined([wiring.paths(relay, target), below.paths(source[moved], relay[moved]).numbered(moved)])

    def _searched(self, source: Ints, target: Ints) -> Paths:
        try:
            return shortest_paths(self.links, self.capacity, len(self.node_names), source, target)
        except Unreachable as cut:
            reaching = np.zeros(self.devices, bool)
            reaching[cut.reaching[cut.reaching < self.devices]] = True
            islands = sorted((np.flatnonzero(reaching), np.flatnonzero(~reaching)), key=len)
            raise InfeasibleError(
                f"no way is left from {self.node_names[cut.source]} to {self.node_names[cut.target]}: failed links "
                f"cut {len(islands[0])} of {self.devices} devices off ({_listed(islands[0])})",
                where=self.name,
                fix="leave these devices out of the job, or give their links a share above 0",
            ) from None


def _listed(numbers: Ints, most: int = 8) -> str:
    shown = ", ".join(str(number) for number in numbers[:most])
    return shown + (f" and {len(numbers) - most} others" if len(numbers) > most else "")


def fabric_of(
    cluster: Cluster, devices: int, conditions: Conditions = HEALTHY, routing: Routing | None = None
) -> Fabric:
    """The graph of `devices` devices of a cluster, packed densely, with the links in the state they are in.

    Every device has ports of its own at each level that the devices span: a GPU's NVLink ports lead to its node's
    switch, its network card to the fabric between nodes.

    Raises:
        UsageError: The cluster has fewer devices, or a condition names no part of it.
    """
    routing = routing or Routing()
    levels = cluster.for_devices(devices).levels
    check_conditions(conditions, cluster, devices)
    parts = Parts(devices=devices)
    wirings: list[Wiring | None] = []
    for index, level in enumerate(levels):
        inner = levels[index - 1].size if index else 1
        place = LevelPlace(level=level, index=index, devices=devices, inner=inner, routing=routing)
        wirings.append(WIRINGS[level.topology](parts, place))
    links = parts.finished()
    return Fabric(
        name=f"{cluster.name} with {devices} devices",
        devices=devices,
        levels=levels,
        node_names=tuple(parts.node_names),
        links=links,
        capacity=capacities(links, devices, levels, conditions),
        wirings=tuple(wirings),
        routing=routing,
    )
