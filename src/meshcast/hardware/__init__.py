"""Devices, links and clusters, and a catalogue of them in which every number cites its source."""

from meshcast.hardware.cluster import Cluster, NetworkLevel, Topology, Wrap, single
from meshcast.hardware.conditions import (
    HEALTHY,
    Conditions,
    LinkCondition,
    check_conditions,
    degraded,
    parse_conditions,
)
from meshcast.hardware.device import Core, Device, Energy, Fact, Kind, Source, TensorCores
from meshcast.hardware.link import TEXTBOOK, LinkProtocol, LinkTechnology
from meshcast.hardware.registry import (
    Catalogue,
    catalogue,
    cluster_names,
    device_names,
    is_own,
    link_names,
    load_cluster,
    load_device,
    load_link,
    resolve,
)

__all__ = [
    "HEALTHY",
    "TEXTBOOK",
    "Catalogue",
    "Cluster",
    "Conditions",
    "Core",
    "Device",
    "Energy",
    "Fact",
    "Kind",
    "LinkCondition",
    "LinkProtocol",
    "LinkTechnology",
    "NetworkLevel",
    "Source",
    "TensorCores",
    "Topology",
    "Wrap",
    "catalogue",
    "check_conditions",
    "cluster_names",
    "degraded",
    "device_names",
    "is_own",
    "link_names",
    "load_cluster",
    "load_device",
    "load_link",
    "parse_conditions",
    "resolve",
    "single",
]
