"""From the words of a measurement ("A100 p4de.24xlarge, EFA", "TPU7x Ironwood 2x2x1 ICI") to a cluster and a group.

A grammar, not a list of rows: a device or host (`hosts`), the numbers of devices and nodes, the links inside a host, the
network between hosts with its cards (`networks`), the shape of a slice (`slices`), and words that change algorithms. What is
not understood, and what contradicts itself, is an error that says so; what no word says is listed as assumed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from meshcast.base import Group, UnsupportedError
from meshcast.evidence.validate.collectives.hosts import CARD_ALONE, Host, host_named, on_pcie, tpu_named
from meshcast.evidence.validate.collectives.networks import network_between
from meshcast.evidence.validate.collectives.rows import CollectiveRow
from meshcast.evidence.validate.collectives.slices import slice_system
from meshcast.evidence.validate.collectives.system import System
from meshcast.evidence.validate.collectives.words import number_of, plain, rates_in_bytes
from meshcast.hardware import Cluster, NetworkLevel, load_cluster, load_link

_OFF = re.compile(
    r"nvls ?(?:is )?(?:off|disabled)|nvls(?:_enable)? ?= ?0|(?:no|without|w/o) (?:nvls|(?:nvlink )?sharp)",
    re.IGNORECASE,
)
_ON = re.compile(r"\bsharp\b|\bnvls\b", re.IGNORECASE)
_FABRIC_ADDS = re.compile(
    r"(?:\+|with) ?(?:ib |infiniband )?sharp|sharp (?:is )?(?:on\b|enabled)|collnet(?:_enable)? ?(?:= ?1|on\b|enabled)",
    re.IGNORECASE,
)
_ALGORITHM = re.compile(
    r"\b(?:nccl_)?algo(?:rithm)?s?[ =:]+(ring|tree|nvls_?tree|nvls|collnet\w*)\b|\b(ring|tree)[ -]algo", re.IGNORECASE
)
_ALGORITHM_ALONE = re.compile(r"(?<!fat[ -])\b(ring|tree)\b", re.IGNORECASE)
_PROTOCOL = re.compile(r"\b(?:nccl_)?proto(?:col)?[ =:]+(ll128|ll|simple)\b", re.IGNORECASE)
_NVLINK = re.compile(r"nvlink ?-?([1-6])(?:\.0)?\b")
_GENERATIONS = {"V100": 2, "A100": 3, "H100": 4, "H200": 4, "B200": 5, "B300": 5, "GB200": 5, "GB300": 5}
_REDUCED = {"h800": 8, "a800": 8}  # NVLinks that export variants have left
# bytes/s of 16 lanes in one direction, before encoding and packets.
_PCIE = {3: 16e9, 4: 32e9, 5: 64e9}
_NEWEST_PCIE = {"V100": 3, "A100": 4, "L40S": 4, "H100": 5}
_BRIDGE = (12, 25e9)  # NVLinks of a pair of PCIe cards with three bridges, bytes/s of each (A100 and H100 PCIe briefs)
_LARGEST_PCIE_HOST = 16
# Where a source says "several nodes" and not how many: enough of them that another one changes nothing.
SEVERAL = 16


def system_of(row: CollectiveRow) -> System:
    """The system that a row's words describe.

    Raises:
        UnsupportedError: They are not understood, or contradict each other.
    """
    text = plain(row.hardware)
    if not text.strip():
        raise UnsupportedError("no hardware is named", where=row.id)
    tpu = tpu_named(text)
    if tpu is not None:
        return slice_system(row, *tpu)
    if "oversubscri" in text:
        raise UnsupportedError("what is oversubscribed is not read from words", where=row.id)
    host = _racked(host_named(text, where=row.id), text, row)
    devices, inside, assumed = _counted(host, row)
    cluster = load_cluster(host.cluster)
    levels = list(_inside(cluster, host, row, inside))
    if devices > inside:
        between = network_between(cluster.levels[1], host, row.hardware, inside=inside)
        levels.append(between.level)
        assumed += between.assumed
    _check_rates(row, levels)
    algorithm, protocol = _asked(row, crosses=devices > inside)
    return System(
        cluster=replace(cluster, levels=tuple(levels)).for_devices(devices),
        devices=devices,
        group=Group(dims=((devices, 1),)),
        hardware_class=host.label,
        algorithm=algorithm,
        protocol=protocol,
        assumed=tuple(assumed),
    )


def _racked(host: Host, text: str, row: CollectiveRow) -> Host:
    """The NVLink domain of a rack: its size by name, or by the numbers of devices and racks."""
    named = re.search(r"nvl(\d+)(?: ?[x×] ?(\d+)(?! ?g))?", text)
    if named:
        size = int(named[1]) * int(named[2] or 1)
        if not 2 <= size <= host.devices:
            raise UnsupportedError(f"{host.label} has NVLink domains of {host.devices}, not {size}", where=row.id)
        host = replace(host, devices=size, cards=size)
    racks = number_of(text, "racks?")
    if racks and row.devices:
        if row.devices % racks or row.devices // racks > host.devices:
            raise UnsupportedError(
                f"{row.devices} devices make no {racks} racks of {host.devices} at most", where=row.id
            )
        host = replace(host, devices=row.devices // racks, cards=row.devices // racks)
    return host


def _counted(host: Host, row: CollectiveRow) -> tuple[int, int, list[str]]:
    """(members of the group, devices of one host that take part, what was assumed), as the numbers say."""
    said = number_of(row.hardware, "nodes?|hosts?|servers?")
    rack = host.cluster.endswith("nvl72")  # trays of a rack are called nodes, too: those change nothing
    if said and row.nodes and said != row.nodes:
        raise UnsupportedError(f"nodes is {row.nodes}, the hardware says {said}", where=row.id)
    nodes = SEVERAL if row.several_nodes else row.nodes or said
    assumed: list[str] = []
    size = host.devices
    if row.devices is None:
        if _one_card(row.hardware) and row.several_nodes:
            size = 1  # what a card does is the same for any host
        assumed.append(f"{size * (nodes or 1)} devices")
    devices = row.devices or size * (nodes or 1)
    if devices < 2:
        raise UnsupportedError(f"{devices} device has nothing to send", where=row.id)
    if nodes and devices % nodes:
        raise UnsupportedError(f"{devices} devices do not spread evenly over {nodes} nodes", where=row.id)
    if nodes and not rack:
        flexible = on_pcie(plain(row.hardware)) or host.cluster.endswith("-server")
        most = max(size, _LARGEST_PCIE_HOST) if flexible else size
        if host is not CARD_ALONE and devices // nodes > most:
            raise UnsupportedError(
                f"{devices} devices in {nodes} nodes: a host of {host.sold or host.label} has {size}", where=row.id
            )
        size = devices // nodes
    return devices, min(size, devices), assumed


def _one_card(text: str) -> bool:
    return re.search(r"\b(?:single|one|1)\b[^,;+]*\bnic\b", text.lower()) is not None


def _inside(cluster: Cluster, host: Host, row: CollectiveRow, size: int) -> list[NetworkLevel]:
    """The levels inside a host of which `size` devices take part."""
    text = plain(f"{row.hardware}; {row.notes}")
    level = replace(cluster.levels[0], size=size)
    _check_generation(host, row)
    if host.switched:
        level = replace(level, topology="switch")
    for name, links in _REDUCED.items():
        if name in text:
            level = replace(level, links=links)
    if on_pcie(plain(row.hardware)) or host.label == "PCIe" or level.name == "pcie":
        return [*_bridged(host, row, size), *([_pcie(level, host, row)] if size > 1 else [])]
    # A vendor's list of expected peaks has rows with and without switches that add: without the word, they do not.
    expected = "expected peak" in text and not _ON.search(row.hardware)
    if _OFF.search(text) or expected:
        level = replace(level, in_network_reduction=False)
    elif re.search(r"\bnvls\b", row.hardware.lower()) and not level.in_network_reduction:
        raise UnsupportedError(f"{host.label} has no switches that add (NVLS)", where=row.id)
    if re.search(r"fully[ -]connected|full mesh|point-to-point", text) and size > 1 and level.topology != "full":
        peers = size - 1
        level = replace(
            level, topology="full", links=peers, link_bandwidth=level.bandwidth / peers, in_network_reduction=False
        )
    return [level] if size > 1 else []


def _pcie(level: NetworkLevel, host: Host, row: CollectiveRow) -> NetworkLevel:
    """PCIe between the devices of a host, by its generation and whether they reach each other directly."""
    text = plain(row.hardware)
    if level.name != "pcie":
        level = replace(load_cluster("a100-pcie-server").levels[0], size=level.size)
        level = replace(level, link_bandwidth=_PCIE[_NEWEST_PCIE[host.label.split()[0]]])
    said = re.search(r"pcie ?-?(?:gen)? ?([3-6])(?:\.0)?(?: ?x ?(8|16)\b)?", text)
    if said:
        newest = _NEWEST_PCIE.get(host.label.split()[0], max(_PCIE))
        if int(said[1]) > newest:
            raise UnsupportedError(f"{host.label} has PCIe {newest}, not {said[1]}", where=row.id)
        level = replace(level, link_bandwidth=_PCIE[int(said[1])] * int(said[2] or 16) / 16)
    if re.search(r"(?:p2p|peer-to-peer) (?:is )?(?:off|disabled)|(?:no|without) (?:p2p|peer-to-peer)|staged", text):
        level = replace(level, link=load_link("pcie-staged"))
    elif re.search(r"(?:p2p|peer-to-peer) (?:is )?(?:on|enabled)|with (?:p2p|peer-to-peer)", text):
        level = replace(level, link=load_link("pcie"))
    return level


def _bridged(host: Host, row: CollectiveRow, size: int) -> list[NetworkLevel]:
    """The NVLinks between two PCIe cards that a bridge joins."""
    if "bridge" not in row.hardware.lower():
        return []
    label = host.label.split()[0]
    if label not in ("A100", "H100") or size % 2:
        raise UnsupportedError(f"bridges between {size} {host.label} of a host are not described", where=row.id)
    links, rate = _BRIDGE
    pair = load_cluster(f"dgx-{label.lower()}").levels[0]
    return [replace(pair, topology="full", size=2, links=links, link_bandwidth=rate, in_network_reduction=False)]


def _check_generation(host: Host, row: CollectiveRow) -> None:
    said = _NVLINK.search(plain(row.hardware))
    generation = _GENERATIONS.get(host.label)
    if said and generation and int(said[1]) != generation:
        raise UnsupportedError(f"{host.label} has NVLink {generation}, not {said[1]}", where=row.id)


def _check_rates(row: CollectiveRow, levels: list[NetworkLevel]) -> None:
    """A rate in bytes must be that of a level, in one direction or in both: nothing else is made of it."""
    known = [times * level.bandwidth for level in levels for times in (1, 2)]
    for said in rates_in_bytes(row.hardware):
        if not any(abs(said - rate) <= 0.01 * rate for rate in known):
            have = ", ".join(f"{level.name} {level.bandwidth / 1e9:g} GB/s" for level in levels)
            raise UnsupportedError(f"{said / 1e9:g} GB/s is said; a device has {have} in one direction", where=row.id)


def _asked(row: CollectiveRow, *, crosses: bool) -> tuple[str | None, str | None]:
    """(algorithm, protocol) that the words name."""
    every = f"{row.hardware}; {row.collective}; {row.notes}"
    protocol = _PROTOCOL.search(every)
    named = _ALGORITHM.search(every) or _ALGORITHM_ALONE.search(f"{row.hardware}; {row.collective}")
    algorithm: str | None = None
    if named:
        said = next(word for word in named.groups() if word).lower().replace("_", "")
        algorithm = (
            "nvls-tree" if said == "nvlstree" else "in-network" if said.startswith(("nvls", "collnet")) else said
        )
    elif _FABRIC_ADDS.search(row.hardware) and crosses:
        algorithm = "in-network"
    return algorithm, protocol[1] if protocol else None
