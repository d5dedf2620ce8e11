"""From the words of a measurement ("A100 p4de.24xlarge, EFA", "TPU7x Ironwood 2x2x1 ICI") to a cluster and a group.

The rules are general: a device by its name, a host by its cloud's name, a network by its words and card rates, an
NVLink domain by the numbers of devices and nodes. What no rule understands is an error that says so.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from meshcast.errors import UnsupportedError
from meshcast.hardware import Cluster, NetworkLevel, load_cluster, load_link
from meshcast.mesh import Group
from meshcast.validate.collectives.rows import CollectiveRow

# What a name means, the more special ones first: (pattern, cluster, the class that errors are told by).
_NAMED = (
    (r"gb300", "gb300-nvl72", "GB300"),
    (r"gb200", "gb200-nvl72", "GB200"),
    (r"\bp6e?-b300", "dgx-b300", "B300"),
    (r"b300", "dgx-b300", "B300"),
    (r"\bp6-b200", "aws-p6-b200", "B200"),
    (r"b200", "dgx-b200", "B200"),
    (r"\bp5en?\.|\bp5en\b|\bp5e\b", "aws-p5en", "H200"),
    (r"h200", "dgx-h200", "H200"),
    (r"h100.*pcie|pcie.*h100", "h100-pcie-server", "H100 PCIe"),
    (r"\bp5\b", "aws-p5", "H100"),
    (r"h100", "dgx-h100", "H100"),
    (r"\bp4de", "aws-p4de", "A100"),
    (r"\bp4dn?\b", "aws-p4d", "A100"),
    (r"a100.*pcie|pcie.*a100", "a100-pcie-server", "A100 PCIe"),
    (r"a100.*40 ?gb", "dgx-a100-40gb", "A100"),
    (r"a100", "dgx-a100", "A100"),
    (r"l40s", "l40s-server", "L40S"),
    (r"v100|dgx-1\b", "dgx-v100", "V100"),
    (r"mi300x?", "mi300x-node", "MI300X"),
    (r"mi250x?", "mi250x-node", "MI250X"),
    (r"tpu ?-?v?7x?|ironwood", "tpu-v7-core-pod", "TPU v7"),
    (r"v6e|trillium", "tpu-v6e-pod", "TPU v6e"),
    (r"v5p", "tpu-v5p-pod", "TPU v5p"),
    (r"v5e|v5 ?lite", "tpu-v5e-pod", "TPU v5e"),
    (r"tpu ?-?v4", "tpu-v4-pod", "TPU v4"),
    (r"tpu ?-?v3", "tpu-v3-pod", "TPU v3"),
    (r"pcie ?-?(gen)? ?5", "h100-pcie-server", "PCIe"),
    (r"pcie ?-?(gen)? ?[34]", "a100-pcie-server", "PCIe"),
    (r"rdma|infiniband|roce", "dgx-h100", "network card"),
)
# Networks by their words, and the technology of their links.
_NETWORKS = ((r"\befa\b", None), (r"\broce\b|ethernet", "roce"), (r"infiniband|\bib\b|[nhx]dr\b", "infiniband"))
_EFA = {"A100": "efa-1", "V100": "efa-1"}  # cards of their time; later ones have the second generation
_CARDS = re.compile(r"(?:(\d+) ?x ?)?(\d+) ?gb(?:it|ps)?(?:/s)?\b(?! ?hbm)", re.IGNORECASE)
_OFF = re.compile(r"nvls (?:is )?(?:off|disabled)|nvls(?:_enable)? ?= ?0|(?:no|without) (?:nvls|sharp)", re.IGNORECASE)
_ON = re.compile(r"\bsharp\b|\bnvls\b", re.IGNORECASE)
_FABRIC_ADDS = re.compile(r"(?:\+|with) ?(?:ib )?sharp", re.IGNORECASE)
_SHAPE = re.compile(r"\b(\d+x\d+(?:x\d+)?)\b")
# Where a source says "several nodes" and not how many: enough of them that another one changes nothing.
SEVERAL = 16


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
    text = row.hardware.lower()
    found = next(((name, label) for pattern, name, label in _NAMED if re.search(pattern, text)), None)
    if found is None:
        raise UnsupportedError(f"no rule understands the hardware {row.hardware!r}", where=row.id)
    cluster, label = load_cluster(found[0]), found[1]
    if cluster.device.kind == "tpu":
        return _slice(row, cluster, label)
    cluster = replace(cluster, levels=tuple(_changed(cluster, row, label)))
    devices, cluster = _counted(cluster, row)
    algorithm = "in-network" if _FABRIC_ADDS.search(row.hardware) and len(cluster.levels) > 1 else None
    return System(
        cluster=cluster,
        devices=devices,
        group=Group(dims=((devices, 1),)),
        hardware_class=label,
        algorithm=algorithm,
    )


def _changed(cluster: Cluster, row: CollectiveRow, label: str) -> list[NetworkLevel]:
    """The cluster's levels with what the words say of switches and cards."""
    inside, *outside = cluster.levels
    text = f"{row.hardware}; {row.notes}"
    # A vendor's list of expected peaks has rows with and without switches that add: without the word, they do not.
    expected = "expected peak" in row.notes.lower() and not _ON.search(row.hardware)
    if _OFF.search(text) or expected:
        inside = replace(inside, in_network_reduction=False)
    if "fully connected" in text.lower() and row.devices and row.devices > 1:
        peers = row.devices - 1
        rate = inside.bandwidth / peers
        inside = replace(inside, topology="full", size=row.devices, links=peers, link_bandwidth=rate)
    if label == "PCIe" and "3" in row.hardware:
        inside = replace(inside, link_bandwidth=inside.link_bandwidth / 2)
    return [inside, *(_network(level, row, label) for level in outside)]


def _network(level: NetworkLevel, row: CollectiveRow, label: str) -> NetworkLevel:
    for pattern, name in _NETWORKS:
        if re.search(pattern, row.hardware.lower()):
            level = replace(level, link=load_link(name or _EFA.get(label, "efa-2")))
            break
    cards = _CARDS.search(row.hardware)
    # Memory sizes are written with the same letters; only a rate of network cards is a multiple of 25.
    if cards and int(cards[2]) >= 25 and int(cards[2]) % 25 == 0:
        total = int(cards[1] or 1) * int(cards[2]) * 1e9 / 8
        level = replace(level, links=1, link_bandwidth=total / (1 if _single(row) else 8))
    return level


def _single(row: CollectiveRow) -> bool:
    return re.search(r"single nic|one nic|1 nic", row.hardware.lower()) is not None


def _counted(cluster: Cluster, row: CollectiveRow) -> tuple[int, Cluster]:
    """(members of the group, the cluster with the domains that these numbers of devices and nodes make)."""
    inside, *outside = cluster.levels
    size = 1 if _single(row) else inside.size
    nodes = SEVERAL if row.several_nodes else row.nodes
    devices = row.devices or size * (nodes or 1)
    if nodes and devices % nodes == 0 and devices // nodes < inside.size and inside.size <= 16:
        # Racks of one NVLink domain count their trays as nodes: those change nothing.
        size = devices // nodes
    if devices < 2:
        raise UnsupportedError(f"{devices} device has nothing to send", where=row.id)
    levels = [replace(inside, size=size), *outside] if size > 1 else outside
    return devices, replace(cluster, levels=tuple(levels)).for_devices(devices)


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
    shape = _SHAPE.search(row.hardware)
    chips = math.prod(map(int, shape[1].split("x"))) if shape else devices
    inner = cluster.levels[0].size if len(cluster.levels) > 2 else 1  # devices of a chip
    if inner > 1 and shape and devices == chips:
        # A group has one device of every chip; the chips' other devices have groups of their own beside it.
        group, spanned = Group(dims=((devices, inner),), devices=devices * inner), devices * inner
    else:
        group, spanned = Group(dims=((devices, 1),)), devices
    return System(cluster=cluster.for_devices(spanned), devices=devices, group=group, hardware_class=label)
