"""The hardware of a run: a device of the catalogue, its hosts, and the network between them, by the run's cells."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from meshcast.base import MeshcastError, UnsupportedError
from meshcast.hardware import (
    Cluster,
    Device,
    NetworkLevel,
    cluster_names,
    load_cluster,
    load_device,
    resolve,
    with_software,
)
from meshcast.jobs.stated.findings import Findings
from meshcast.jobs.stated.run import StatedRun
from meshcast.network import filled_alike, shaped, slice_shape

# TPU7x by core is a device of its own; these spellings of it count cores.
_BY_CORE = ("tpu-v7", "tpu-v7x", "tpu7x", "tpu-7x", "ironwood")
# The first word of `scale_out`, and the link technology that it is.
_FABRICS = {
    "infiniband": "infiniband", "ib": "infiniband", "roce": "roce", "ethernet": "roce", "slingshot": "slingshot", "tcp": "tcp",
    "tcpx": "tcp", "tcpxo": "tcp", "gpudirect": "tcp",
}  # fmt: skip
_OWN = ("rdma", "dcn")  # what the cluster of the catalogue has
FABRICS = (*_FABRICS, "efa", *_OWN)
"""First words of `scale_out` that are understood."""
SCALE_UPS = ("nvlink", "nvswitch", "nvl", "pcie", "xgmi", "infinity", "ici")
"""First words of `scale_up` that are understood, less the number of a generation or of devices behind them."""
_FIRST_EFA = ("a100", "v100")  # cards of their time; later devices have the second generation or a newer one
_PCIE_GENERATION = 4  # where a run does not say which
# Gbit/s of a lane each way behind the encoding, by generation: 8b/10b, from the third on 128b/130b, from the sixth on flits of
# 256 bytes of which 14 check and correct (PCI Express Base Specification).
_PCIE_LANE = {
    1: 2.5 * 8 / 10, 2: 5 * 8 / 10, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130, 6: 64 * 242 / 256, 7: 128 * 242 / 256,
}  # fmt: skip
_PCIE_LANES = 16
_PCIE_HOST = "v100-pcie-server"  # of the catalogue: devices on PCIe that reach each other
_CLOSE = 0.06  # of a device's own figure: 80 GB and 80 GiB are one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSystem:
    """A cluster, and the class that errors are told by."""

    cluster: Cluster
    hardware_class: str


def system_of(run: StatedRun, found: Findings) -> RunSystem | None:
    """The system that a run's words describe; what no catalogue has goes to `found`."""
    try:
        if run.on:
            cluster = resolve(run.on)
            return RunSystem(cluster=cluster, hardware_class=cluster.device.name.split("-sxm")[0])
        device = _device("tpu-v7-core" if run.device in _BY_CORE else run.device)
        cluster = resolve(_noted(device, run))
        cluster = _slices(cluster, run, found) if device.kind == "tpu" else _hosts(cluster, run, found)
    except MeshcastError as error:
        hint = f" ({error.fix})" if error.fix else ""
        found.lacks(f"hardware that is known: {error.message}{hint}", of="on" if run.on else "device")
        return None
    label = (device.bases[0] if device.bases and "-core" in device.name else device.name).split("-sxm")[0]
    return RunSystem(cluster=cluster, hardware_class=label)


def scale_up_size(scale_up: str) -> int | None:
    """Devices that a `scale_up` joins, where it says so: `nvlink4-nvswitch-8`, `nvl72`."""
    domain = re.search(r"nvl(\d+)|-(\d+)$", scale_up)
    return int(domain[1] or domain[2]) if domain else None


def _device(name: str) -> Device:
    """A device by its name, or by that of the system that it is sold in: `gb200-nvl72`, `dgx-h100`."""
    return load_cluster(name).device if name in cluster_names() else load_device(name)


def _noted(device: Device, run: StatedRun) -> Device:
    """The device with the power limit and memory that the run notes, where they are not its own."""
    changes: dict[str, float] = {}
    for pattern, unit, name in ((r"(\d+) ?w\b", 1.0, "tdp_watts"), (r"(\d+) ?gb\b", 1e9, "memory_bytes")):
        if said := re.search(pattern, run.device_note.lower()):
            value = float(said[1]) * unit
            if abs(value / getattr(device, name) - 1) > _CLOSE + 0.08 * (name == "memory_bytes"):
                changes[name] = value
    return replace(device, **changes) if changes else device  # type: ignore[arg-type]


def _hosts(cluster: Cluster, run: StatedRun, found: Findings) -> Cluster:
    """Hosts of devices on one scale-up network each, and the network between them."""
    if len(cluster.levels) < 2:
        return cluster
    inside, between = cluster.levels[0], cluster.levels[-1]
    size = scale_up_size(run.scale_up) or run.devices_per_host or inside.size
    if size > inside.size or inside.size % size:
        found.assumes(f"hosts of {size} devices, where those of {cluster.name} have {inside.size}")
    if (pcie := re.match(r"pcie([1-7]?)", run.scale_up)) and "pcie" not in inside.link.name:
        inside = _on_pcie(inside, int(pcie[1] or _PCIE_GENERATION), found)
    switched = "nvswitch" in run.scale_up or "nvl" in run.scale_up.replace("nvlink", "")
    inside = replace(inside, size=size, topology="switch" if switched else inside.topology)
    if run.devices > size:
        between = _between(between, run, found)
    return filled_alike(replace(cluster, levels=(inside, *cluster.levels[1:-1], between)), run.devices)


def _on_pcie(level: NetworkLevel, generation: int, found: Findings) -> NetworkLevel:
    """A host's devices on PCIe alone, where the catalogue's have links of their own: 16 lanes, peer to peer.

    Latency and topology are those of a host of the catalogue that has nothing else.
    """
    found.assumes(f"devices of a host on {_PCIE_LANES} lanes of PCIe {generation}, in place of {level.link.name}")
    return replace(
        load_cluster(_PCIE_HOST).levels[0],
        technology=f"PCIe {generation} x{_PCIE_LANES}",
        size=level.size,
        link_bandwidth=_PCIE_LANE[generation] * _PCIE_LANES * 1e9 / 8,
    )


def _between(level: NetworkLevel, run: StatedRun, found: Findings) -> NetworkLevel:
    """The network between hosts: its technology, and each device's rate."""
    word = re.split(r"[-_ ]", run.scale_out)[0]
    if word == "efa":
        first = run.device.startswith(_FIRST_EFA)
        level = with_software(level, "efa-1" if first else "efa-2")
    elif word in _FABRICS:
        level = with_software(level, _FABRICS[word])
    elif word not in ("", *_OWN):
        found.assumes(f"network {level.link.name}, for {run.scale_out}")
    if not word:
        found.assumes(f"network {level.link.name}")
    if "sharp" in run.extra.words:
        level = _adding(level, found)
    if run.gbit_per_device is None:
        found.assumes(f"{level.bandwidth * 8 / 1e9:g} Gbit/s a device")
        return level
    return replace(level, links=1, link_bandwidth=run.gbit_per_device * 1e9 / 8)


def _adding(level: NetworkLevel, found: Findings) -> NetworkLevel:
    """The network between hosts whose switches are asked to add (SHARP), where they can."""
    if level.in_network_reduction and level.link.in_network_share:
        return replace(level, in_network_asked=True)
    found.assumes(f"sums across hosts by their devices: sharp is told, and switches of {level.link.name} do not add")
    return level


def _slices(cluster: Cluster, run: StatedRun, found: Findings) -> Cluster:
    """Slices of TPUs that are smaller than a pod, and joined by the data-centre network."""
    slices = run.slices or 1
    inner = cluster.levels[0].size if len(cluster.levels) > 2 else 1  # devices of a chip
    ici, each = cluster.levels[-2], run.devices // slices
    if slices == 1 or run.devices % slices or each >= ici.size or each % inner:
        return cluster
    try:
        return shaped(cluster, slice_shape(ici, each // inner, ici.size // inner), inner, alone=False)
    except UnsupportedError as error:
        found.assumes(f"slices as large as pods: {error.message}")
        return cluster
