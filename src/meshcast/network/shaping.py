"""A cluster as a job is given it: slices of TPUs of a given shape, racks that are filled alike."""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.base import UnsupportedError
from meshcast.hardware import Cluster, NetworkLevel
from meshcast.network.slices import closed_sides, slice_shape

_LARGEST_HOST = 16  # devices (HGX-2, Trainium); a domain of more is a rack of several hosts
# Devices of a rack's host: GPUs of a compute tray of GB200 and GB300 NVL72. Cluster files have no level for it.
_TRAY = 4
_SPARE = 8  # racks that would hold a job, for each of which another may be taken so that all have as many devices


def filled_alike(cluster: Cluster, devices: int) -> Cluster:
    """The cluster with racks of which a job takes as many devices each, where whole hosts of them make that up.

    Schedulers give a job equal blocks of hosts of every rack (Slurm's `--segment` of its block topology; 16 trays of an NVL72 for
    jobs of 64, 128, ... GPUs): 512 devices are 8 racks of 64, not seven of 72 and one of 8, which all others would wait for. For
    that an eighth more racks are taken than would hold the job, and one besides: 64 of 72.
    Slices of a torus have shapes of their own.
    """
    inside = cluster.levels[0] if len(cluster.levels) > 1 else None
    if inside is None or inside.topology != "switch" or inside.size <= _LARGEST_HOST or devices % inside.size == 0:
        return cluster
    fewest = -(-devices // inside.size)
    most = fewest + fewest // _SPARE + 1
    racks = next((racks for racks in range(fewest, most + 1) if devices % (racks * _TRAY) == 0), 1)
    if racks < 2:
        return cluster
    return replace(cluster, levels=(replace(inside, size=devices // racks), *cluster.levels[1:]))


def shaped(cluster: Cluster, shape: tuple[int, ...], inner: int, *, alone: bool) -> Cluster:
    """The cluster with slices of this shape.

    Raises:
        UnsupportedError: The pod has no such slice, or it is closed along some sides only and not the one that as many
            chips usually form.
    """
    index = len(cluster.levels) - 2
    ici: NetworkLevel = cluster.levels[index]
    sides = (*shape, *(1,) * (len(ici.dims) - len(shape)))
    if len(sides) != len(ici.dims) or any(a > b for a, b in zip(sorted(sides), sorted(ici.dims), strict=True)):
        whole = "x".join(map(str, ici.dims))
        raise UnsupportedError(
            f"no slice {'x'.join(map(str, shape))} fits into {cluster.name}, a torus of {whole}",
            fix="give as many sides as it has, none longer than its own",
        )
    chips = math.prod(sides)
    closed = closed_sides(ici, sides)
    if ici.wrap == "full-axis" and len(set(closed)) > 1:
        if alone and sorted(slice_shape(ici, chips, ici.size // inner)) == sorted(sides):
            return cluster  # the slice that the catalogue's pod has for so many chips
        raise UnsupportedError(
            f"a slice {'x'.join(map(str, shape))} that closes along some sides only is not described",
            fix="give sides of which all are as long as the pod's, or none",
        )
    wrap = ("always" if all(closed) else "never") if ici.wrap == "full-axis" else ici.wrap
    levels = list(cluster.levels)
    levels[index] = replace(ici, dims=sides, size=chips * inner, wrap=wrap)
    return replace(cluster, levels=tuple(levels))
