"""Device groups of explicit collectives, from replica-group lists or mesh axes to compact sizes and strides."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshcast.base import Group, Mesh, SubAxis, pairs_of
from meshcast.programs import ir

_Ids = np.ndarray[Any, np.dtype[np.int64]]


def group_of_ids(ids: Sequence[int], mesh: Mesh) -> Group:
    """The compact form of one group's device ids: nested arithmetic progressions, named by mesh axes where they match.

    A list with no such structure is described by its size over a stride that takes it as far, which only coarsens
    placement.
    """
    members = np.asarray(ids, dtype=np.int64).reshape(-1)
    first, last = (int(members.min()), int(members.max())) if members.size else (0, 0)
    devices = max(mesh.size, last + 1)
    dims: list[tuple[int, int]] = []
    while members.size > 1:
        steps = np.diff(members)
        stride = int(steps[0])
        breaks = np.flatnonzero(steps != stride)
        run = int(breaks[0]) + 1 if breaks.size else members.size
        if stride == 0 or members.size % run or not _regular(members, run, stride):
            spread = max(1, -(-(int(members.max()) - int(members.min())) // (members.size - 1)))
            return Group(dims=((members.size, spread), *dims), first=first, devices=devices)
        dims.insert(0, (run, abs(stride)))
        members = members[::run]
    return Group(dims=tuple(dims) or ((1, 1),), axes=_axis_names(dims, mesh), first=first, devices=devices)


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
        if not (
            groups >= 0
        ).any():  # an empty list, or nothing but what fills up shorter groups: all devices are one group
            return Group(dims=((mesh.size, 1),), axes=tuple(name for name, _ in mesh.axes), devices=mesh.size)
        return _group_of_rows(np.ascontiguousarray(np.atleast_2d(groups), dtype=np.int64), mesh)
    axes: list[str | SubAxis] = []
    for name, pre, size in re.findall(
        r'axis_ref<name = "([^"]+)"(?:, sub_axis_info = [^<]*<pre_size = (\d+), size = (\d+)>)?', str(attribute)
    ):
        axes.append(SubAxis(name=name, pre_size=int(pre), size=int(size)) if size else name)
    return mesh.group(axes)


def _group_of_rows(groups: _Ids, mesh: Mesh) -> Group:
    """The group that stands for all rows, or the largest with a list of all where none does; -1 fills up shorter rows."""
    counts = np.count_nonzero(groups >= 0, axis=1)
    largest = groups[counts == counts.max()]
    longest = largest[int(np.argmin(largest[:, 0]))]
    found = group_of_ids(longest[longest >= 0].tolist(), mesh)
    rows = np.sort(groups, axis=1)
    alike = np.sort(found.starts()[:, None] + found.offsets(), axis=1)
    if rows.shape == alike.shape and np.array_equal(rows[np.argsort(rows[:, 0])], alike[np.argsort(alike[:, 0])]):
        return found
    return replace(found, table=tuple(tuple(int(i) for i in row if i >= 0) for row in groups))


def permutation(attribute: Any, mesh: Mesh) -> tuple[Group, bytes]:
    """The devices that the pairs of a `collective_permute` link up, a ring or a chain of source-target pairs; and the pairs.

    Such a group lies in two domains of a network level if and only if one of its pairs crosses between them, so the
    outermost level of the group is that of the slowest pair. Of groups that are no shifts of each other the one counts
    whose pairs cross the widest aligned block of 2^k devices: that is exact for levels with powers of two.
    """
    pairs = np.stack(permute_pairs(attribute)).tobytes()
    return _permute_group(pairs, mesh), pairs


def permute_pairs(attribute: Any) -> tuple[_Ids, _Ids]:
    """Sources and targets of a `collective_permute`."""
    pairs = np.asarray(ir.DenseElementsAttr(attribute), dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@functools.lru_cache(maxsize=256)
def _permute_group(pairs: bytes, mesh: Mesh) -> Group:
    sources, targets = pairs_of(pairs)
    if sources.size == 0:
        return Group(dims=((1, 1),))
    together = linked(sources, targets)
    crossed = np.frexp((sources ^ targets).astype(np.float64))[1]  # bits up to the highest that differs
    widest = together[int(np.argmax(crossed))]
    return group_of_ids(np.union1d(sources[together == widest], targets[together == widest]).tolist(), mesh)


def linked(sources: _Ids, targets: _Ids) -> _Ids:
    """A number for each pair, the same for pairs that share devices, directly or through others.

    Each device sends at most once and receives at most once, so pairs form rings and chains. Following `next` 2^k times
    at once leads to the end of a chain, and passes every member of a ring.
    """
    devices, where = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    sender, receiver = where[: sources.size], where[sources.size :]
    follows = np.arange(devices.size)
    follows[sender] = receiver
    step, lowest = follows, np.arange(devices.size)
    for _ in range(int(devices.size).bit_length()):
        lowest = np.minimum(lowest, lowest[step])
        step = step[step]
    ends = follows[step] == step
    return np.where(ends, step, lowest)[sender]
