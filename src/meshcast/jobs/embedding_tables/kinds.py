"""Ranks that are not alike: devices of another kind, or slower ones, each with its own seconds and memory.

Samples are shared out evenly, so that every rank has the same dense part and its device's own time for it; tables are put
where they are looked up soonest and where there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from meshcast.base import UnsupportedError, with_article
from meshcast.hardware import Cluster, Conditions, Device, check_conditions, load_device
from meshcast.jobs.embedding_tables.dense import DensePart
from meshcast.jobs.embedding_tables.kernels import EmbeddingKernels


@dataclass(frozen=True, kw_only=True)
class RankKind:
    """Ranks that are alike.

    Attributes:
        kernels: Seconds of look-ups and updates on the device.
        dense: The dense part on it, at its speed.
        memory_bytes: What it has for tables.
        speed: Share of a healthy device's.
    """

    kernels: EmbeddingKernels
    dense: DensePart
    memory_bytes: float
    speed: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RankKinds:
    """The kinds that a job has, the cluster's own first, and each rank's by its number."""

    kinds: tuple[RankKind, ...]
    of_rank: npt.NDArray[np.int64]

    @property
    def slowest_dense(self) -> DensePart:
        """The passes of whichever kind takes longest for each, for all ranks meet after it."""
        parts = [kind.dense for kind in self.kinds]
        return DensePart(**{each.name: max(getattr(part, each.name) for part in parts) for each in fields(DensePart)})


def gpu_of(device: Device) -> Device:
    """The device, if look-ups are modelled on it.

    Raises:
        UnsupportedError: It is no GPU.
    """
    if device.kind != "gpu":
        raise UnsupportedError(
            f"look-ups of tables are modelled on GPUs, and {device.name} is {with_article(device.kind)}", where="--on",
            fix="name a GPU or a cluster of GPUs, e.g. dgx-h100",
        )  # fmt: skip
    return device


def devices_of(cluster: Cluster, devices: int, conditions: Conditions) -> list[tuple[Device, float]]:
    """Every rank's device and its speed.

    Raises:
        UsageError: A condition names a device that is not there.
        UnsupportedError: One is no GPU.
    """
    check_conditions(conditions, cluster, devices)
    others: Mapping[str, Device] = {name: gpu_of(load_device(name)) for name in set(conditions.kinds.values())}
    return [
        (
            others[conditions.kinds[rank]] if rank in conditions.kinds else cluster.device,
            conditions.speed.get(rank, 1.0),
        )
        for rank in range(devices)
    ]


def rank_kinds(ranks: Sequence[tuple[Device, float]], dense: Mapping[str, DensePart], share: float) -> RankKinds:
    """The kinds of such ranks.

    Args:
        ranks: Device and speed of each.
        dense: The dense part by the device's name.
        share: Of a device's memory that tables and the dense part may take.
    """
    found: dict[tuple[str, float], int] = {}
    kinds: list[RankKind] = []
    for device, speed in ranks:
        if (device.name, speed) in found:
            continue
        found[device.name, speed] = len(kinds)
        part = dense[device.name]
        kinds.append(
            RankKind(
                kernels=EmbeddingKernels(device=device), dense=slowed(part, speed), speed=speed,
                memory_bytes=share * device.memory_bytes - part.memory_bytes,
            )
        )  # fmt: skip
    return RankKinds(kinds=tuple(kinds), of_rank=np.array([found[device.name, speed] for device, speed in ranks]))


def slowed(part: DensePart, speed: float) -> DensePart:
    """A dense part at a share of its device's speed; its host is as fast as before."""
    if speed == 1:
        return part
    names = ("bottom_forward_s", "forward_s", "backward_s", "bottom_backward_s", "optimizer_s")
    return replace(part, **{name: getattr(part, name) / speed for name in names})
