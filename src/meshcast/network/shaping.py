"""A cluster of TPUs with slices of a given shape in place of the usual one."""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.base import UnsupportedError
from meshcast.hardware import Cluster, NetworkLevel
from meshcast.network.slices import closed_sides, slice_shape


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
