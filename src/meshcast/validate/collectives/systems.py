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
    (r"\bp5en?\b(?<!p5)", "aws-p5en", "H200"),
    (r"(?<!g)h200|\ba3[- ]ultra", "dgx-h200", "H200"),
    (r"h100.*pcie|pcie.*h100", "h100-pcie-server", "H100 PCIe"),
    (r"\bp5\b", "aws-p5", "H100"),
    (r"(?<!g)h[18]00|\ba3[- ](?:high|mega)", "dgx-h100", "H100"),
    (r"\bp4de", "aws-p4de", "A100"),
    (r"\bp4dn?\b", "aws-p4d", "A100"),
    (r"a100.*pcie|pcie.*a100", "a100-pcie-server", "A100 PCIe"),
    (r"a100.*40 ?gb", "dgx-a100-40gb", "A100"),
    (r"\ba[18]00", "dgx-a100", "A100"),
    (r"l40s", "l40s-server", "L40S"),
    (r"\brtx|\bl40?\b|\ba(?:10g?|40)\b|\bt4\b", "l40s-server", "PCIe card"),
    (r"v100|dgx-1\b|\bp3(?:dn)?\b", "dgx-v100", "V100"),
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
_CARDS = re.compile(r"(?:\b(\d+) ?x ?|\b)(\d+) ?G(?:b|bit|bps)?(?:/s)?\b")  # GB are bytes of memory
_CARD = 800  # Gbit/s of the fastest card there is: more than that is said of a whole host
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
    text = row.hardware.lower()
    found = next(((name, label) for pattern, name, label in _NAMED if re.search(pattern, text)), None)
    if found is None:
        raise UnsupportedError(f"no rule understands the hardware {row.hardware!r}", where=row.id)
    cluster, label = load_cluster(found[0]), found[1]
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
    yield from (_network(level, row, label, size) for level in outside)


def _network(level: NetworkLevel, row: CollectiveRow, label: str, size: int) -> NetworkLevel:
    """The level between hosts of `size` devices, with what the words say of it."""
    for pattern, name in _NETWORKS:
        if re.search(pattern, row.hardware.lower()):
            level = replace(level, link=load_link(name or _EFA.get(label, "efa-2")))
            break
    cards = _CARDS.search(row.hardware)
    if cards is None:
        return level
    rate = int(cards[2]) * 1e9 / 8
    if cards[1] or _single(row) or int(cards[2]) > _CARD:
        rate *= int(cards[1] or 1) / size  # of a whole host
    return replace(level, links=1, link_bandwidth=rate)


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
