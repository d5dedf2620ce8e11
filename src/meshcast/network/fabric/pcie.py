"""Hosts whose devices hang on PCIe: switches of a few devices, a root complex for each socket, perhaps host memory.

A device's port, a switch's port upwards and the link between sockets each have a rate of their own. Devices below one
switch reach each other through it; others through the root complexes. Where devices cannot address each other, all
of it is copied through the memory of a socket: in at the sender's side and out again at the receiver's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.network.fabric.links import NONE, Ints, Parts, Paths
from meshcast.network.fabric.wiring import LevelPlace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PcieHosts:
    """Ports by device and by switch, links between the sockets of a host, and those into and out of memory."""

    up: Ints
    down: Ints
    switch: Ints
    root: Ints
    switch_up: Ints
    switch_down: Ints
    sockets: int
    between: int
    memory_in: Ints | None
    memory_out: Ints | None

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Up as far as needed, across, and down."""
        here, there = self.switch[source], self.switch[target]
        left, right = self.root[source], self.root[target]
        staged = self.memory_in is not None
        climbs = np.ones(len(source), bool) if staged else here != there
        across = self.between + left * self.sockets + right % self.sockets
        hops = [
            self.up[source],
            np.where(climbs, self.switch_up[here], NONE),
            np.where(left != right, across, NONE),
            np.where(climbs, self.switch_down[there], NONE),
            self.down[target],
        ]
        if self.memory_in is not None and self.memory_out is not None:
            hops += [self.memory_in[left], self.memory_out[left]]
        return Paths.of_hops(hops)

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """PCIe switches do not add.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("PCIe switches do not add", fix="choose another algorithm for this level")


def pcie(parts: Parts, place: LevelPlace) -> PcieHosts:
    """A host for each domain of the level: its devices dealt out evenly over sockets, in blocks of `radix` a switch."""
    level, index, half = place.level, place.index, place.level.latency_s / 2
    sockets = level.sockets
    devices = np.arange(place.devices)
    host, local = devices // place.size, devices % place.size
    per_socket = -(-place.size // sockets)
    root_of = host * sockets + local // per_socket
    per_switch = level.radix
    switches_per_root = -(-per_socket // per_switch)
    switch_of = root_of * switches_per_root + local % per_socket // per_switch
    roots = parts.nodes(f"{level.name} root complex", place.domains * sockets)
    switches = parts.nodes(f"{level.name} switch", len(roots) * switches_per_root)
    rate, lanes = level.bandwidth, level.links
    up, down = parts.join(devices, switches[switch_of], bandwidth=rate, latency_s=half, level=index, lanes=lanes)
    over = np.repeat(roots, switches_per_root)
    switch_up, switch_down = parts.join(switches, over, bandwidth=rate, latency_s=0.0, level=index, lanes=lanes)
    source = np.repeat(np.arange(len(roots)), sockets)
    target = source // sockets * sockets + np.tile(np.arange(sockets), len(roots))
    crossing = np.where(source == target, 0.0, level.socket_bandwidth)
    between = parts.connect(roots[source], roots[target], bandwidth=crossing, latency_s=0.0, level=index)
    memory_in = memory_out = None
    if level.staging_bandwidth:
        memory = parts.nodes(f"{level.name} host memory", len(roots))
        memory_in, memory_out = parts.join(roots, memory, bandwidth=level.staging_bandwidth, latency_s=0.0, level=index)
    return PcieHosts(
        up=up, down=down, switch=switch_of, root=root_of, switch_up=switch_up, switch_down=switch_down,
        sockets=sockets, between=int(between[0]), memory_in=memory_in, memory_out=memory_out,
    )  # fmt: skip
