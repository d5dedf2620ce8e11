"""From a run's hardware to a cluster: the same words as for collectives, and slices of TPUs by their chips."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from meshcast.base import UnsupportedError
from meshcast.evidence.validate.collectives.hosts import host_named, sibling_named, tpu_named
from meshcast.evidence.validate.collectives.networks import network_between
from meshcast.evidence.validate.collectives.words import plain
from meshcast.evidence.validate.runs.findings import Findings
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.hardware import Cluster, load_cluster, load_device


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSystem:
    """A cluster, the devices of it that ran, and the class that errors are told by."""

    cluster: Cluster
    devices: int
    hardware_class: str


def system_of(row: RunRow, found: Findings) -> RunSystem | None:
    """The system that a row's words describe."""
    text = plain(row.hardware)
    tpu = tpu_named(text)
    if tpu is not None:
        name, label = tpu
        return RunSystem(cluster=load_cluster(name), devices=_chips(row, found), hardware_class=label)
    try:
        cluster, label = _of_hosts(row, text, found)
    except UnsupportedError as error:
        found.lacks(error.message)
        return None
    return RunSystem(cluster=cluster, devices=row.devices, hardware_class=label)


def _of_hosts(row: RunRow, text: str, found: Findings) -> tuple[Cluster, str]:
    """The cluster of hosts that a text names, with the network that it tells, and the class of its devices."""
    host = host_named(text, where=row.id)
    cluster = load_cluster(host.cluster)
    inside, between = cluster.levels
    inside = replace(inside, size=host.devices, topology="switch" if host.switched else inside.topology)
    if row.devices > host.devices:
        said = network_between(between, host, row.hardware, inside=host.devices)
        between = said.level
        for each in said.assumed:
            found.assumes(each)
    sibling = sibling_named(text)
    device = load_device(sibling) if sibling else cluster.device
    return replace(cluster, device=device, levels=(inside, between)), host.label


def _chips(row: RunRow, found: Findings) -> int:
    """Devices of TPUs: chips, of which a row may count the cores."""
    per_chip = _cores_per_chip(row)
    if per_chip == 1 or row.devices % per_chip:
        return row.devices
    found.assumes(f"{row.devices} cores are {row.devices // per_chip} chips, the cores of a chip working as one device")
    return row.devices // per_chip


def _cores_per_chip(row: RunRow) -> int:
    """2 where a row counts the cores of TPUs whose chips have two, as "v3-8 (8 cores)" does."""
    cores = re.search(r"\((\d+) cores\)", row.hardware.lower())
    return 2 if cores and int(cores[1]) == row.devices else 1
