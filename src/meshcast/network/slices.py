"""Slices of rings and tori: their shape, which of their sides are closed, and how groups lie along them.

The closed form and the fabric's graph both ask here, so that they speak of the same links. Devices fill a slice
row-major, the last side fastest. A group whose members form a box, evenly spaced along each side, has one `SliceLine` a side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshcast.base import InfeasibleError
from meshcast.hardware import NetworkLevel

Ints = NDArray[np.int64]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceLine:
    """How a group lies along one side of a slice.

    Attributes:
        side: The number of the side.
        length: Members along it.
        spacing: Hops from a member to the next.
        closed: Whether the way on from the last member leads to the first.
        shared: Groups that interleave on the same links.
    """

    side: int
    length: int
    spacing: int = 1
    closed: bool = False
    shared: int = 1

    @property
    def ways(self) -> int:
        """Ways that a member at the end of the line can send: both if it is closed, but to a neighbour there is one."""
        return 2 if self.closed and self.length * self.spacing > 2 else 1

    @property
    def free_ways(self) -> float:
        """The directions of a line that interleaved groups leave free."""
        return self.ways / self.shared

    @property
    def farthest(self) -> int:
        """Hops to the member that is farthest."""
        return self.spacing * (self.length // 2 if self.closed else self.length - 1)

    @property
    def crossing(self) -> float:
        """The bytes that the line's fullest link carries in an exchange where each member sends one byte, evenly to all others.

        Around a ring of k the mean way is `floor(k^2 / 4) / k` hops over two links, and all links are equally full. On an
        open line `floor(k / 2)` members send to `ceil(k / 2)` across the middle. Both are the bound by bisection.
        """
        across = (self.length // 2) * ((self.length + 1) // 2) / self.length
        return across / self.ways * self.shared


def slice_shape(level: NetworkLevel, positions: int, whole: int) -> Shape:
    """The smallest slice of a ring or torus with so many of its positions; among these the one with the evenest sides.

    Pods that optical switches close are made of cubes of 4x4x4, so whole cubes stay whole: 192 is 4x4x12, not 4x6x8. The
    shapes that clouds offer are these: 2x4, 4x4, 8x16 of two-dimensional pods; 2x2x4, 4x4x8, 8x8x8 of others (Cloud TPU
    documentation, TPU v5e, v5p and v6e).

    Raises:
        InfeasibleError: There are not as many.
    """
    if level.topology == "ring":
        return (positions,)
    if positions == whole:
        return level.dims
    unit = 4 if level.wrap == "multiples-of-4" and positions % 4 ** len(level.dims) == 0 else 1
    fitting = [*_fitting(level.dims, positions, unit)] or [*_fitting(level.dims, positions, 1)]
    if not fitting:
        raise InfeasibleError(
            f"{positions} devices do not fit into a torus of {'x'.join(map(str, level.dims))}",
            fix=f"take {math.prod(level.dims)} devices or fewer, or a larger cluster",
        )
    # With equal volumes, fewer links to go; with equal lengths, short sides first, as slices are usually written.
    return min(fitting, key=lambda shape: (math.prod(shape), sum(shape), shape))


def _fitting(dims: Shape, positions: int, unit: int) -> Iterator[Shape]:
    for shape in itertools.product(*(range(unit, side + 1, unit) for side in dims[:-1])):
        last = -(-positions // (math.prod(shape) * unit)) * unit
        if last <= dims[-1]:
            yield (*shape, last)


def closed_sides(level: NetworkLevel, shape: Shape) -> tuple[bool, ...]:
    """Which sides of a slice have a link from their end to their start."""
    return tuple(_closes(level, side, whole) for side, whole in zip(shape, level.dims or shape, strict=True))


def _closes(level: NetworkLevel, side: int, whole: int) -> bool:
    if level.wrap == "full-axis":
        return side == whole
    return level.wrap == "always" or (level.wrap == "multiples-of-4" and side % 4 == 0)


def lines_in_slice(level: NetworkLevel, sets: Sequence[Ints], inner: int, devices: int) -> tuple[SliceLine, ...]:
    """How the members of sets of devices, each in one domain of a level, lie in its slice; the worst where they differ.

    `inner` devices share a position. A set that is no evenly spaced box is taken as a ring of its own, in the order of
    its members, over one link.
    """
    positions = -(-min(level.size, devices) // inner)
    shape = slice_shape(level, positions, level.size // inner)
    # A group lies in most domains alike; it is looked at once.
    different = {(inside := members % level.size).tobytes(): inside for members in sets}
    places = [np.unique(inside // inner % math.prod(shape)) for inside in different.values()]
    return worst_lines(places, shape, closed_sides(level, shape))


def worst_lines(places: Sequence[Ints], shape: Shape, closed: tuple[bool, ...]) -> tuple[SliceLine, ...]:
    """The lines of sets of several positions: of those that form no box, else of those with the fewest links."""
    once = list({place.tobytes(): place for place in places if len(place) > 1}.values())
    if len(once) == 1:
        once = [_rows_filled(once[0], shape)]
    found = (_lines(box, shape, closed, several=len(once) > 1) for box in _different(once, shape))
    return min(found, key=lambda lines: (regular(lines), sum(line.free_ways for line in lines)))


def _rows_filled(place: Ints, shape: Shape) -> Ints:
    """A whole job's positions with its last row filled up, where it fills several rows of a slice but not the last.

    No slice has just so many positions, so that the job has a part of the next larger one: its rings go on through all of it.
    """
    row = math.prod(shape[1:])
    whole = -(-len(place) // row) * row
    if len(place) <= row or whole == len(place) or (place != np.arange(len(place))).any():
        return place
    return np.arange(whole)


def _different(places: Sequence[Ints], shape: Shape) -> Iterator[Ints]:
    """The coordinates of sets that lie differently, shifts of each other once; a row for each side."""
    by_length: dict[int, list[Ints]] = {}
    for place in places:
        by_length.setdefault(len(place), []).append(place)
    for rows in by_length.values():
        where = np.stack(np.unravel_index(np.stack(rows), shape), axis=1).astype(np.int64)
        yield from np.unique(where - where.min(axis=2, keepdims=True), axis=0)


def _lines(box: Ints, shape: Shape, closed: tuple[bool, ...], *, several: bool) -> tuple[SliceLine, ...]:
    members = box.shape[1]
    lines: list[SliceLine] = []
    for side, values in enumerate(map(np.unique, box)):
        gaps = np.diff(values)
        if not len(gaps):
            continue
        if (gaps != gaps[0]).any():
            return (SliceLine(side=NO_SIDE, length=members),)
        length, spacing = len(values), int(gaps[0])
        lines.append(
            SliceLine(
                side=side,
                length=length,
                spacing=spacing,
                closed=closed[side] and length * spacing == shape[side],
                shared=spacing if several else 1,
            )
        )
    if math.prod(line.length for line in lines) != members:
        return (SliceLine(side=NO_SIDE, length=members),)
    return tuple(lines)


# The side of a ring in the order of its members that lies along no side.
NO_SIDE = -1


def regular(lines: Iterable[SliceLine]) -> bool:
    """Whether lines are those of an evenly spaced box."""
    return all(line.side != NO_SIDE for line in lines)
