"""A network level carried by another technology than the catalogue's cluster has there."""

from __future__ import annotations

from dataclasses import replace

from meshcast.hardware.cluster import NetworkLevel
from meshcast.hardware.registry import load_cluster, load_link

_TCP_LEVEL = "cpu-host"  # the catalogue's hosts on Ethernet and TCP


def with_software(level: NetworkLevel, name: str) -> NetworkLevel:
    """A network level carried by another technology: a link of the catalogue, or `tcp`."""
    if name == "tcp":
        # No measurement of sockets was found to calibrate on: Ethernet's protocols with the latency of TCP.
        latency = load_cluster(_TCP_LEVEL).levels[0].latency_s
        return replace(level, link=load_link("roce"), latency_s=latency, in_network_reduction=False)
    link = load_link(name)
    if link == level.link:
        return level
    return replace(level, link=link, in_network_reduction=level.in_network_reduction and bool(link.in_network_share))
