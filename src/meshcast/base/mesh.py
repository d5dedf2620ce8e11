"""Device meshes and groups of devices, kept compact: sizes and strides, never lists of ids.

Devices are numbered row-major over the mesh axes, so the members of a collective's group over some axes are
`first + sum(i_d * stride_d)`. One `(size, stride)` pair per axis says this for any number of devices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshcast.base.errors import UsageError, expect

MOST_SIZES = 8  # of uneven groups, in a name
_SIZE = re.compile(r"0*[1-9][0-9]{0,11}")  # ASCII digits: str.isdigit() takes superscripts, which int() does not
OUTSIDE = -1  # a rank that takes no part in a collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Named axes with their sizes, outermost first, as in `jax.sharding.AbstractMesh`."""

    axes: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Mesh:
        """A mesh from `{"data": 8, "model": 4}`."""
        return cls(axes=tuple(sizes.items()))

    @classmethod
    def parse(cls, text: str) -> Mesh:
        """A mesh from the command line's `data=8,model=4`.

        Raises:
            UsageError: It is no such text.
        """
        expect(text, str, "a text", where="mesh", fix='such as "data=8,model=4"; Mesh.of takes a dict')
        axes: dict[str, int] = {}
        for part in filter(None, text.split(",")):
            name, equals, size = part.partition("=")
            if not equals or not name.strip() or not _SIZE.fullmatch(size.strip()):
                raise UsageError(
                    f"mesh axis {part!r} is not NAME=SIZE", where="--mesh", fix="write --mesh data=8,model=4"
                )
            if name.strip() in axes:
                raise UsageError(
                    f"mesh axis {name.strip()!r} is given twice", where="--mesh", fix="give every axis once"
                )
            axes[name.strip()] = int(size)
        if not axes:
            raise UsageError(f"{text!r} names no mesh axis", where="--mesh", fix="write --mesh data=8,model=4")
        return cls.of(axes)

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod([size for _, size in self.axes])

    @property
    def sizes(self) -> dict[str, int]:
        """Axis sizes by name."""
        return dict(self.axes)

    def stride(self, name: str) -> int:
        """Distance in device ids between neighbours along an axis."""
        names = [axis for axis, _ in self.axes]
        return math.prod(size for _, size in self.axes[names.index(name) + 1 :])

    def group(self, axes: Sequence[str | SubAxis]) -> Group:
        """The groups a collective over these axes forms."""
        dims: list[tuple[int, int]] = []
        for axis in axes:
            if isinstance(axis, SubAxis):
                full = self.sizes[axis.name]
                dims.append((axis.size, self.stride(axis.name) * (full // (axis.pre_size * axis.size))))
            else:
                dims.append((self.sizes[axis], self.stride(axis)))
        return Group(dims=tuple(dims), axes=tuple(str(axis) for axis in axes), devices=self.size)

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes) or "one device"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAxis:
    """A part of a mesh axis, as Shardy splits one: `size` devices after `pre_size` outer ones."""

    name: str
    pre_size: int
    size: int

    def __str__(self) -> str:
        return f"{self.name}:({self.pre_size}){self.size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One of the equal groups of a collective: `(size, stride)` per dimension, and the mesh axes it came from.

    `first` is its lowest device, and `devices` how many devices such groups share out; 0 when it is the only group.
    Where the groups are not all shifts of each other that share out the devices (other sizes, devices left out), this is
    the largest, and `table` lists all of them.
    """

    dims: tuple[tuple[int, int], ...]
    axes: tuple[str, ...] = ()
    first: int = 0
    devices: int = 0
    table: tuple[tuple[int, ...], ...] = ()

    @property
    def size(self) -> int:
        """Devices in one group."""
        return math.prod([size for size, _ in self.dims])

    def offsets(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Device ids of the group relative to its first, made on demand."""
        ids = np.zeros(1, dtype=np.int64)
        for size, stride in self.dims:
            ids = (ids[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
        return ids

    def starts(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """First devices of all groups: the shifts that share out the devices, as the strides leave them free.

        Where strides do not nest no shifts do, and as many neighbouring ones are taken as there are groups.
        """
        last = int(self.offsets()[-1])
        room = self.devices - self.first - last  # shifts of this group that stay among the devices
        if room <= 1:
            return np.array([self.first], dtype=np.int64)
        free: list[tuple[int, int]] = []
        inside = 1
        for size, stride in sorted((dim for dim in self.dims if dim[0] > 1), key=lambda dim: dim[1]):
            if stride % inside:
                return self.first + np.arange(min(room, self.devices // self.size), dtype=np.int64)
            free.append((stride // inside, inside))
            inside = stride * size
        starts = Group(dims=((max(1, self.devices // inside), inside), *free)).offsets()
        return starts if self.first in starts else self.first + starts[starts < room]

    def rows(self) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """The devices of every group."""
        if self.table:
            return [np.array(members, dtype=np.int64) for members in self.table]
        return list(self.starts()[:, None] + self.offsets())

    def __str__(self) -> str:
        sizes = [len(members) for members in self.table]
        if self.table and not (self.axes and len(set(sizes)) == 1):
            # The largest group's axes or strides would say that the others are like it.
            some = "+".join(map(str, sizes[:MOST_SIZES])) + ("+..." if len(sizes) > MOST_SIZES else "")
            return f"{'uneven' if len(set(sizes)) > 1 else 'listed'} {some}"
        return "*".join(self.axes) if self.axes else "*".join(f"{size}@{stride}" for size, stride in self.dims)


def group_numbers(group: Group, devices: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For every rank the number of the group it is in, or `OUTSIDE`."""
    numbers = np.full(devices, OUTSIDE, dtype=np.int64)
    if group.table:
        for number, members in enumerate(group.table):
            numbers[list(members)] = number
    else:
        rows = group.starts()[:, None] + group.offsets()
        numbers[rows] = np.arange(len(rows))[:, None]
    return numbers


def pairs_of(
    pairs: bytes,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Sources and targets of a permutation, kept as the bytes of both; those that send to themselves are left out."""
    sources, targets = np.frombuffer(pairs, dtype=np.int64).reshape(2, -1)
    moving = sources != targets
    return sources[moving], targets[moving]
