"""Devices, links and clusters, and a catalogue of them in which every number cites its source."""

from meshcast.hardware.cluster import Cluster, NetworkLevel, Topology, single
from meshcast.hardware.conditions import HEALTHY, Conditions, LinkCondition, parse_conditions
from meshcast.hardware.device import Core, Device, Energy, Fact, Kind, Source, TensorCores
from meshcast.hardware.link import TEXTBOOK, LinkProtocol, LinkTechnology
from meshcast.hardware.registry import (
    Catalogue,
    catalogue,
    cluster_names,
    device_names,
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
    "catalogue",
    "cluster_names",
    "device_names",
    "link_names",
    "load_cluster",
    "load_device",
    "parse_conditions",
    "load_link",
    "resolve",
    "single",
]
