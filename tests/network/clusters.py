"""Clusters with round numbers."""

from __future__ import annotations

from dataclasses import replace

from meshcast.hardware import Cluster, NetworkLevel, load_device, single

NODE = NetworkLevel(
    name="node", technology="test", topology="switch", size=8, links=1, link_bandwidth=100e9, latency_s=1e-6
)
FABRIC = NetworkLevel(
    name="fabric", technology="test", topology="switch", size=2**17, links=1, link_bandwidth=10e9, latency_s=5e-6
)
TORUS = NetworkLevel(
    name="ici",
    technology="test",
    topology="torus",
    size=256,
    links=4,
    link_bandwidth=50e9,
    latency_s=1e-6,
    dims=(16, 16),
)


def cluster(*levels: NetworkLevel) -> Cluster:
    return replace(single(load_device("h100-sxm")), name="test", levels=levels, max_devices=2**17)


TWO_LEVELS = cluster(NODE, FABRIC)
