"""Devices, links and clusters, and a catalogue of them in which every number cites its source."""

from meshcast.hardware.cluster import Cluster, NetworkLevel, Topology, single
from meshcast.hardware.conditions import HEALTHY, Conditions, LinkCondition, parse_conditions
from meshcast.hardware.device import Core, Device, Energy, Fact, Kind, Source, TensorCores
from meshcast.hardware.registry import (
    Catalogue,
    catalogue,
    cluster_names,
    device_names,
    load_cluster,
    load_device,
    resolve,
)

__all__ = [
    "HEALTHY",
    "Catalogue",
    "Cluster",
    "Conditions",
    "Core",
    "Device",
    "Energy",
    "Fact",
    "Kind",
    "LinkCondition",
    "NetworkLevel",
    "Source",
    "TensorCores",
    "Topology",
    "catalogue",
    "cluster_names",
    "device_names",
    "load_cluster",
    "load_device",
    "parse_conditions",
    "resolve",
    "single",
]
