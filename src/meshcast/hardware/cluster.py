"""What connects devices: network levels from the inside out, and the cluster they form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from meshcast.base import Rows, UsageError, copier, format_rate, shown
from meshcast.hardware.device import Device, Fact, Source
from meshcast.hardware.link import TEXTBOOK, LinkTechnology

Topology = Literal["switch", "ring", "torus", "full", "fat-tree", "dragonfly", "pcie"]
Wrap = Literal["always", "full-axis", "multiples-of-4", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """One level of a network: groups of `size` devices that reach each other over the same kind of link.

    Attributes:
        topology: "switch" (any pair at full rate), "ring", "torus" (neighbours along each of `dims`), "full" (one
            link to every other device), "fat-tree" (leaf switches under spines), "dragonfly" (groups of routers) or
            "pcie" (PCIe switches under the root complexes of a host).
        size: Devices in one domain of this level, counting those inside the levels below.
        links: Links a device has at this level. A share of a network card counts as one link.
        link_bandwidth: bytes/s of one link in one direction.
        latency_s: Time of the first byte over one hop.
        in_network_reduction: Whether the switches can add (NVLink SHARP, SHARP).
        in_network_asked: Whether software asks switches between hosts to (NCCL's plugin for SHARP), which it does not by itself.
        dims: Largest shape of a torus, or a dragonfly's devices per router, routers per group and groups; empty for
            other topologies.
        oversubscription: Rate that the devices under one leaf of a fat tree can send over what leaves it upwards.
        radix: Ports of one switch of a fat tree; devices under one PCIe switch of a host.
        rails: Leaf switches that the devices of one part of the level below are spread over in turn: 1 is a plain fat
            tree, as many as a node has devices a rail-optimised one.
        wrap: Which sides of a torus or ring are closed when a job uses a part of it.
        twist: Whether the closing links of a torus's short sides are shifted along those twice as long.
        global_links: Links from each router of a dragonfly to other groups.
        sockets: Root complexes of one PCIe host.
        socket_bandwidth: bytes/s from one root complex to the next, in one direction; 0 with one socket.
        staging_bandwidth: bytes/s through a socket's memory in one direction, where devices of a PCIe host cannot
            reach each other directly and everything is copied through it; 0 where they can.
        link: What software gets out of such links; the textbook's alpha and beta where nothing is known of it.
        assumed: What was taken for granted about it that may be otherwise, for warnings; empty where nothing was.
    """

    name: str
    technology: str
    topology: Topology
    size: int
    links: int
    link_bandwidth: float
    latency_s: float
    in_network_reduction: bool = False
    in_network_asked: bool = False
    dims: tuple[int, ...] = ()
    link: LinkTechnology = TEXTBOOK
    oversubscription: float = 1.0
    radix: int = 0
    rails: int = 1
    wrap: Wrap = "always"
    twist: bool = False
    global_links: int = 0
    sockets: int = 1
    socket_bandwidth: float = 0.0
    staging_bandwidth: float = 0.0
    assumed: str = ""

    @property
    def bandwidth(self) -> float:
        """bytes/s that one device can send at this level, over all its links, in one direction."""
        return self.links * self.link_bandwidth

    @property
    def switched(self) -> bool:
        """Whether switches connect the devices, so that a device reaches any other with its whole rate."""
        return self.topology in ("switch", "fat-tree", "dragonfly", "pcie")

    @property
    def devices_per_leaf(self) -> int:
        """Devices on one switch next to them; all of a domain's where one switch connects them."""
        if self.topology == "fat-tree":
            return max(1, int(self.radix * self.oversubscription / (1 + self.oversubscription)))
        if self.topology == "dragonfly":
            return self.dims[0]
        return self.radix if self.topology == "pcie" else self.size

    @property
    def taper(self) -> float:
        """The rate that the devices under one switch can send at, over the rate at which they can send out of it; 1 or more."""
        if self.topology == "fat-tree":
            return max(1.0, self.oversubscription)
        if self.topology == "dragonfly":
            return max(1.0, self.dims[0] * self.links / self.global_links)
        return float(self.radix) if self.topology == "pcie" else 1.0

    @property
    def effective_bandwidth(self) -> float:
        """bytes/s that one device can send when all send beyond their own switch at once.

        It bounds exchanges between all pairs. A ring in the order of the devices leaves a switch once, not once for
        each of its devices, and keeps `bandwidth`.
        """
        return self.bandwidth / self.taper


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal devices and the network levels between them, innermost first."""

    name: str
    title: str
    device: Device
    levels: tuple[NetworkLevel, ...]
    max_devices: int
    aliases: tuple[str, ...] = ()
    notes: str = ""
    facts: Mapping[str, Fact] = field(hash=False, repr=False)
    sources: Mapping[str, Source] = field(hash=False, repr=False)

    def straggling(self, devices: int) -> float:
        """How much longer a step of so many devices takes because all parts wait for the slowest one: 1 where none vary.

        Steps of equal parts vary from one to the next, hosts and what they share with others being what they are. With a
        standard deviation of `variation` the slowest of n lies `variation * sqrt(2 ln n)` behind, for large n.
        """
        found, below = 1.0, 1
        for level in self.levels:
            parts = -(-min(devices, level.size) // below)
            if level.link.variation and parts > 1:
                found *= 1.0 + level.link.variation * math.sqrt(2.0 * math.log(parts))
            below = level.size
        return found

    @classmethod
    def load(cls, name_or_path: str | Path) -> Cluster:
        """The cluster of the catalogue with this name or alias, or in this TOML file.

        Raises:
            UnsupportedError: No such cluster, or no such device as it names.
            InputError: The file cannot be read or does not follow the schema.
        """
        from meshcast.hardware.registry import load_cluster  # which makes clusters

        return load_cluster(name_or_path)

    def summary_rows(self) -> Rows:
        """Rows with the cluster's device and its network levels, innermost first."""
        return [
            ("cluster", f"{self.name}: {self.title}"),
            ("device", f"{self.device.name}: {self.device.title}"),
            *(
                (level.name, f"{level.size:,} devices, {level.topology}, {format_rate(level.bandwidth)} a device")
                for level in self.levels
            ),
        ]

    def for_devices(self, count: int) -> Cluster:
        """The cluster with only the levels that `count` devices span, when they are packed densely.

        Raises:
            UsageError: There are not that many devices, or `count` is not positive.
        """
        if count < 1:
            raise UsageError(f"{self.name}: cannot use {count} devices", fix="ask for at least 1 device")
        if count > self.max_devices:
            raise UsageError(
                f"{self.name} has at most {self.max_devices} devices, {count} were asked for",
                fix=f"use --devices {self.max_devices} or fewer, another cluster, or a cluster file of your own",
            )
        inner = tuple(level for level in self.levels if level.size < count)
        spanned = 0 if count == 1 else len(inner) + 1
        return self if spanned == len(self.levels) else _with_levels(self, self.levels[:spanned])


_with_levels = copier(Cluster, "levels")  # sweeps ask for a program's devices again and again


def single(device: Device) -> Cluster:
    """A cluster of this one device, with no network."""
    return Cluster(
        name=device.name, title=device.title, device=device, levels=(), max_devices=1, facts={}, sources=device.sources
    )
