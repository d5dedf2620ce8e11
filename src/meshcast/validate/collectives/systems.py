"""From the words of a measurement ("A100 p4de.24xlarge, EFA", "TPU7x Ironwood 2x2x1 ICI") to a cluster and a group.

The rules are general: a device by its name, a host by its cloud's name, a network by its words and card rates, an
NVLink domain by the numbers of devices and nodes. What no rule understands is an error that says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshcast.errors import UnsupportedError
from meshcast.hardware import Cluster, NetworkLevel
from meshcast.mesh import Group
from meshcast.validate.collectives.rows import CollectiveRow
from meshcast.validate.hardware_words import named_cluster, worded_network

_REDUCED = {"h800": 8, "a800": 8}  # NVLinks that export variants have left
_OFF = re.compile(r"nvls (?:is )?(?:off|disabled)|nvls(?:_enable)? ?= ?0|(?:no|without) (?:nvls|sharp)", re.IGNORECASE)
_ON = re.compile(r"\bsharp\b|\bnvls\b", re.IGNORECASE)
_FABRIC_ADDS = re.compile(r"(?:\+|with) ?(?:ib )?sharp", re.IGNORECASE)
_SHAPE = re.compile(r"\b(\d+x\d+(?:x\d+)?)\b")
# Where a source says "several nodes" and not how many: enough of them that another one changes nothing.
SEVERAL = 16
_HOST = 16  # devices in a host at most
_PCIE_3 = 16e9  # bytes/s of 16 lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What a measurement ran on.

    Attributes:
        cluster: With the levels that its devices span.
        devices: Members of a group.
        group: Which devices they are, and how many groups run at once.
        hardware_class: What errors are told by.
        algorithm: Where the words name one that libraries do not take by themselves.
    """

    cluster: Cluster
    devices: int
    group: Group
    hardware_class: str
    algorithm: str | None = None


def system_of(row: CollectiveRow) -> System:
    """The system that a row's words describe.

    Raises:
        UnsupportedError: No rule understands them, or they contradict each other.
    """
    cluster, label = named_cluster(row.hardware, where=row.id)
    if cluster.device.kind == "tpu":
        return _slice(row, cluster, label)
    devices, size = _counted(cluster, row)
    levels = tuple(_changed(cluster, row, label, size))
    algorithm = "in-network" if _FABRIC_ADDS.search(row.hardware) and devices > size else None
    return System(
        cluster=replace(cluster, levels=levels).for_devices(devices),
        devices=devices,
        group=Group(dims=((devices, 1),)),
        hardware_class=label,
        algorithm=algorithm,
    )


def _counted(cluster: Cluster, row: CollectiveRow) -> tuple[int, int]:
    """(members of the group, devices in one domain of the innermost level), as the numbers of devices and nodes say."""
    size = cluster.levels[0].size
    nodes = SEVERAL if row.several_nodes else row.nodes
    if row.devices is None and _single(row):
        size = 1  # a card alone: what it does is the same for any host
    devices = row.devices or size * (nodes or 1)
    # Racks of one NVLink domain count their trays as nodes: those change nothing.
    if nodes and size <= _HOST and devices % nodes == 0:
        size = min(size, devices // nodes)
    if devices < 2:
        raise UnsupportedError(f"{devices} device has nothing to send", where=row.id)
    return devices, size


def _changed(cluster: Cluster, row: CollectiveRow, label: str, size: int) -> Iterator[NetworkLevel]:
    """The cluster's levels with what the words say of switches and cards, `size` devices in an innermost domain."""
    inside, *outside = cluster.levels
    text = f"{row.hardware}; {row.notes}".lower()
    inside = replace(inside, size=size)
    for name, links in _REDUCED.items():
        if name in text:
            inside = replace(inside, links=links)
    # A vendor's list of expected peaks has rows with and without switches that add: without the word, they do not.
    expected = "expected peak" in text and not _ON.search(row.hardware)
    if _OFF.search(text) or expected:
        inside = replace(inside, in_network_reduction=False)
    if "fully connected" in text and row.devices and row.devices > 1:
        peers = row.devices - 1
        rate = inside.bandwidth / peers
        inside = replace(inside, topology="full", size=row.devices, links=peers, link_bandwidth=rate)
    if re.search(r"pcie ?-?(?:gen)? ?3", text):
        inside = replace(inside, link_bandwidth=_PCIE_3)
    if size > 1:
        yield inside
    yield from (worded_network(level, row.hardware, label, size, shared=_single(row)) for level in outside)


def _single(row: CollectiveRow) -> bool:
    return re.search(r"\b(?:single|one|1) nic\b", row.hardware.lower()) is not None


def _slice(row: CollectiveRow, cluster: Cluster, label: str) -> System:
    """TPUs: a slice by its shape or its number; between slices by the word DCN."""
    if not row.devices or row.devices < 2:
        raise UnsupportedError("a collective of TPUs needs its number of devices", where=row.id)
    devices = row.devices
    between = re.search(r"\((\d+) slices?\)", row.hardware.lower())
    if "dcn" in f"{row.hardware} {row.collective}".lower() and between and int(between[1]) > 1:
        slices = int(between[1])
        if devices % slices:
            raise UnsupportedError(f"{devices} devices make no {slices} equal slices", where=row.id)
        # One chip of every slice: all the chips of a slice do this at once.
        inside = replace(cluster.levels[-2], size=devices // slices, dims=(devices // slices,))
        levels = (inside, replace(cluster.levels[-1], size=devices))
        group = Group(dims=((slices, devices // slices),), devices=devices)
        cluster = replace(cluster, levels=levels)
        return System(cluster=cluster, devices=slices, group=group, hardware_class=label)
    inner = cluster.levels[0].size if len(cluster.levels) > 2 else 1  # devices of a chip
    shape = _SHAPE.search(row.hardware)
    chips = math.prod(map(int, shape[1].split("x"))) if shape else 0
    if inner > 1 and devices <= chips:
        # A group has one device of every chip; the chips' other devices have groups of their own beside it.
        group, spanned = Group(dims=((devices, inner),), devices=chips * inner), chips * inner
    else:
        group, spanned = Group(dims=((devices, 1),)), devices
    return System(cluster=cluster.for_devices(spanned), devices=devices, group=group, hardware_class=label)
