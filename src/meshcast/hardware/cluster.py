"""What connects devices: network levels from the inside out, and the cluster they form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from meshcast.display import Rows, shown
from meshcast.errors import UsageError
from meshcast.hardware.device import Device, Fact, Source
from meshcast.hardware.link import TEXTBOOK, LinkTechnology
from meshcast.units import format_rate

Topology = Literal["switch", "ring", "torus", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """One level of a network: groups of `size` devices that reach each other over the same kind of link.

    Attributes:
        topology: "switch" (any pair at full rate), "ring", "torus" (neighbours along each of `dims`), or "full" (one
            link to every other device).
        size: Devices in one domain of this level, counting those inside the levels below.
        links: Links a device has at this level. A share of a network card counts as one link.
        link_bandwidth: bytes/s of one link in one direction.
        latency_s: Time of the first byte over one hop.
        in_network_reduction: Whether the switches can add (NVLink SHARP, SHARP).
        dims: Largest shape of the torus; empty for other topologies.
        link: What software gets out of such links; the textbook's alpha and beta where nothing is known of it.
    """

    name: str
    technology: str
    topology: Topology
    size: int
    links: int
    link_bandwidth: float
    latency_s: float
    in_network_reduction: bool = False
    dims: tuple[int, ...] = ()
    link: LinkTechnology = TEXTBOOK

    @property
    def bandwidth(self) -> float:
        """bytes/s that one device can send at this level, over all its links, in one direction."""
        return self.links * self.link_bandwidth


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

    def summary_rows(self) -> Rows:
        """Its device and its levels, from the inside out."""
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
        return replace(self, levels=self.levels[:spanned])


def single(device: Device) -> Cluster:
    """A cluster of this one device, with no network."""
    return Cluster(
        name=device.name, title=device.title, device=device, levels=(), max_devices=1, facts={}, sources=device.sources
    )
