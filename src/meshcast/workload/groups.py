"""Device groups of explicit collectives, from replica-group lists or mesh axes to compact sizes and strides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshcast.capture.mlir import ir
from meshcast.mesh import Group, Mesh, SubAxis


def group_of_ids(ids: Sequence[int], mesh: Mesh) -> Group:
    """The compact form of one group's device ids: nested arithmetic progressions, named by mesh axes where they match.

    A list with no such structure is described by its size over the tightest stride, which only coarsens placement.
    """
    members = np.asarray(ids, dtype=np.int64).reshape(-1)
    dims: list[tuple[int, int]] = []
    while members.size > 1:
        steps = np.diff(members)
        stride = int(steps[0])
        breaks = np.flatnonzero(steps != stride)
        run = int(breaks[0]) + 1 if breaks.size else members.size
        if stride == 0 or members.size % run or not _regular(members, run, stride):
            spread = max(1, (int(members.max()) - int(members.min())) // max(1, members.size - 1))
            return Group(dims=((members.size, spread), *dims))
        dims.insert(0, (run, abs(stride)))
        members = members[::run]
    return Group(dims=tuple(dims) or ((1, 1),), axes=_axis_names(dims, mesh))


def _regular(members: np.ndarray[Any, Any], run: int, stride: int) -> bool:
    blocks = members.reshape(-1, run)
    return bool(np.all(blocks - blocks[:, :1] == np.arange(run) * stride))


def _axis_names(dims: Sequence[tuple[int, int]], mesh: Mesh) -> tuple[str, ...]:
    named = {(size, mesh.stride(name)): name for name, size in mesh.axes}
    # Neighbouring axes of a group merge into one progression: look for the axes it covers.
    names: list[str] = []
    for size, stride in dims:
        if (size, stride) in named:
            names.append(named[size, stride])
            continue
        covered = [name for name, n in mesh.axes if n > 1 and stride <= mesh.stride(name) < stride * size]
        product = 1
        for name in covered:
            product *= mesh.sizes[name]
        if product != size:
            return ()
        names.extend(covered)
    return tuple(names)


def replica_group(attribute: Any, mesh: Mesh) -> Group:
    """The group of a StableHLO collective's `replica_groups`, dense or by mesh axes (`replica_group_mesh_axes`)."""
    if isinstance(attribute, (ir.DenseIntElementsAttr, ir.DenseElementsAttr)):
        groups = np.asarray(ir.DenseElementsAttr(attribute))
        if groups.size == 0:
            return Group(dims=((mesh.size, 1),), axes=tuple(name for name, _ in mesh.axes))
        first = groups[0] if groups.ndim == 2 else groups.reshape(-1)
        return group_of_ids([int(i) for i in first if i >= 0], mesh)
    axes: list[str | SubAxis] = []
    for name, pre, size in re.findall(
        r'axis_ref<name = "([^"]+)"(?:, sub_axis_info = [^<]*<pre_size = (\d+), size = (\d+)>)?', str(attribute)
    ):
        axes.append(SubAxis(name=name, pre_size=int(pre), size=int(size)) if size else name)
    return mesh.group(axes)


def permute_group(attribute: Any, mesh: Mesh) -> Group:
    """Partners of a `collective_permute`: as far apart as most of its source-target pairs are."""
    pairs = np.asarray(ir.DenseElementsAttr(attribute)).reshape(-1, 2)
    moving = pairs[pairs[:, 0] != pairs[:, 1]]
    if moving.size == 0:
        return Group(dims=((1, 1),))
    distances, counts = np.unique(np.abs(moving[:, 1] - moving[:, 0]), return_counts=True)
    return Group(dims=((2, int(distances[int(np.argmax(counts))])),), axes=())
