"""Replica groups that newer XLA names by mesh axes, spelled out as every reader takes them.

`mesh['data'=4,'model'=2] {'data'}` forms two groups of four; a part of an axis is `'data':(2)2` (two devices, after two
outer ones); a mesh may hold its devices in another order: `mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}`.
"""

from __future__ import annotations

import math
import re

import numpy as np

_GROUPS = re.compile(r"mesh\[([^\]]*)\](?:, device_ids=\(([^)]*\)?)\))? \{([^}]*)\}")
_AXIS = re.compile(r"'?([^',=]+)'?=(\d+)")
_AXIS_PART = re.compile(r"'?([^',:{}\s]+)'?(?::\((\d+)\)(\d+))?")
_IOTA = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")


def spelled_out(text: str) -> str:
    """The text with groups over mesh axes as a transposed iota, `[2,4]<=[4,2]T(1,0)`, or as lists of devices."""
    return _GROUPS.sub(lambda match: _groups(match[1], match[2], match[3]), text)


def _groups(mesh: str, device_ids: str | None, axes: str) -> str:
    sizes = {name: int(size) for name, size in _AXIS.findall(mesh)}
    dims, grouped = _dimensions(sizes, _AXIS_PART.findall(axes))
    order = [dim for dim in range(len(dims)) if dim not in grouped] + grouped
    members = math.prod(dims[dim] for dim in grouped)
    if device_ids is not None:
        groups = _device_order(device_ids).reshape(dims).transpose(order).reshape(-1, members)
        return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups.tolist()) + "}"
    shape = f"[{math.prod(dims) // members},{members}]"
    if order == sorted(order):
        return f"{shape}<=[{math.prod(dims)}]"
    return f"{shape}<=[{','.join(map(str, dims))}]T({','.join(map(str, order))})"


def _dimensions(sizes: dict[str, int], parts: list[tuple[str, str, str]]) -> tuple[list[int], list[int]]:
    """The mesh's sizes, axes split where only a part of them is named, and the named dimensions in their order."""
    named = [(name, int(outer or 1), int(size or sizes[name])) for name, outer, size in parts]
    dims: list[int] = []
    place: dict[tuple[str, int], int] = {}
    for axis, total in sizes.items():
        covered = 1
        for outer, size in sorted((outer, size) for name, outer, size in named if name == axis):
            if outer > covered:
                dims.append(outer // covered)
            place[axis, outer] = len(dims)
            dims.append(size)
            covered = outer * size
        if covered < total:
            dims.append(total // covered)
    return dims, [place[name, outer] for name, outer, _ in named]


def _device_order(text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Device ids in the mesh's order: a transposed iota or a plain list."""
    iota = _IOTA.fullmatch(text)
    if iota is None:
        return np.array([int(each) for each in text.split(",")], dtype=np.int64)
    sizes = [int(each) for each in iota[1].split(",")]
    ids = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)
    return ids.transpose([int(each) for each in iota[2].split(",")]).reshape(-1) if iota[2] else ids.reshape(-1)
