"""Devices, links and clusters, and a catalogue of them in which every number cites its source."""

from meshcast.hardware.cluster import Cluster, NetworkLevel, Topology, Wrap, single
from meshcast.hardware.conditions import HEALTHY, Conditions, LinkCondition, check_conditions, degraded
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
    "Wrap",
    "catalogue",
    "check_conditions",
    "cluster_names",
    "degraded",
    "device_names",
    "load_cluster",
    "load_device",
    "resolve",
    "single",
]
