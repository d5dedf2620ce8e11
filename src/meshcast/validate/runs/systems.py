"""From a run's hardware to a cluster: the same words as for collectives, and slices of TPUs by their chips."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from meshcast.errors import UnsupportedError
from meshcast.hardware import Cluster
from meshcast.validate.hardware_words import named_cluster, worded_network
from meshcast.validate.runs.findings import Findings
from meshcast.validate.runs.rows import RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSystem:
    """A cluster, the devices of it that ran, and the class that errors are told by."""

    cluster: Cluster
    devices: int
    hardware_class: str


def system_of(row: RunRow, found: Findings) -> RunSystem | None:
    """The system that a row's words describe."""
    try:
        cluster, label = named_cluster(row.hardware, where=row.id)
    except UnsupportedError as error:
        found.lacks(error.message)
        return None
    devices = row.devices
    if cluster.device.kind == "tpu":
        per_chip = _cores_per_chip(row)
        if devices % per_chip == 0 and per_chip > 1:
            devices //= per_chip
            found.assumes(f"{row.devices} cores are {devices} chips, the cores of a chip working as one device")
    else:
        inside, *outside = cluster.levels
        levels = (worded_network(level, row.hardware, label, inside.size) for level in outside)
        cluster = replace(cluster, levels=(inside, *levels))
    return RunSystem(cluster=cluster, devices=devices, hardware_class=label)


def _cores_per_chip(row: RunRow) -> int:
    """2 where a row counts the cores of TPUs whose chips have two, as "v3-8 (8 cores)" does."""
    cores = re.search(r"\((\d+) cores\)", row.hardware.lower())
    return 2 if cores and int(cores[1]) == row.devices else 1
