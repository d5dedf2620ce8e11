"""Rings, tori and meshes of devices that pass on what is not for them, with routes one dimension after the other.

Dimension-order routing takes the shorter way around each side; where both are equally long, half of the bytes take
each. After Dally and Towles, "Principles and Practices of Interconnection Networks" (2004), chapters 3, 5 and 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.network.fabric.links import NONE, Flags, Ints, Parts, Paths
from meshcast.network.fabric.wiring import LevelPlace, ones
from meshcast.network.slices import Shape, SliceLine, closed_sides, slice_shape, worst_lines


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Torus:
    """Neighbours along each side of a shape, row-major: the last side varies fastest.

    Attributes:
        shape: Sides of one domain, in positions.
        inner: Devices at one position: the parts of the level below, such as the cores of a chip.
        closed: Which sides have a wrap-around link.
        twisted: Whether closing links are shifted along another side, so that no order of sides leads anywhere.
        one_way: Whether links lead upwards only, as on a ring of devices with one link each.
        links: Link from position p along side d upwards or downwards: `links[p, d, 0 or 1]`, NONE at an open end.
        up, down: Each device's port to its position, where several share one.
    """

    shape: Shape
    inner: int
    closed: tuple[bool, ...]
    twisted: bool
    one_way: bool
    links: Ints
    up: Ints | None
    down: Ints | None

    def coordinates(self, device: Ints) -> Ints:
        """A row a side: where devices lie in their domain."""
        position = device // self.inner % math.prod(self.shape)
        return np.stack(np.unravel_index(position, self.shape)).astype(np.int64)

    def lines(self, sets: Ints) -> tuple[SliceLine, ...]:
        """How rows of devices lie along the sides."""
        places = sets // self.inner % math.prod(self.shape)
        return worst_lines([np.unique(row) for row in places], self.shape, self.closed)

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Shortest ways, side by side; the first side first."""
        parts: list[Paths] = []
        if self.up is not None and self.down is not None:
            parts.append(Paths.of_hops([self.up[source], self.down[target]]))
        flow, share = np.arange(len(source)), ones(len(source))
        here, there = source // self.inner, target // self.inner
        for side, length in enumerate(self.shape):
            stride = math.prod(self.shape[side + 1 :])
            ahead = (there // stride - here // stride) % length
            forward, split = self._ways(side, here // stride % length, there // stride % length)
            # Both ways around are equally long: a second half of the flow takes the other one.
            flow, here, there, ahead = (
                np.concatenate([column, column[split]]) for column in (flow, here, there, ahead)
            )  # fmt: skip
            share[split] /= 2
            share = np.concatenate([share, share[split]])
            forward = np.concatenate([forward, np.zeros(int(split.sum()), bool)])
            left = np.where(forward, ahead, (length - ahead) % length)
            way = np.where(forward, 0, 1)
            while left.any():
                going = left > 0
                link = np.where(going, self.links[here, side, way], NONE)
                parts.append(Paths.of_hops([link], flow, share))
                place = here // stride % length
                moved = here + ((place + 1 - 2 * way) % length - place) * stride
                here, left = np.where(going, moved, here), np.where(going, left - 1, 0)
        return Paths.joined(parts)

    def _ways(self, side: int, here: Ints, there: Ints) -> tuple[Flags, Flags]:
        """(whether upwards is as short as any way, whether downwards is equally short) along a side."""
        length = self.shape[side]
        neither = np.zeros(len(here), bool)
        if self.one_way:
            return ~neither, neither
        if not self.closed[side]:
            return there >= here, neither
        ahead = (there - here) % length
        return 2 * ahead <= length, (2 * ahead == length) & (length > 2)

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """There is no switch that could add.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "in-network reduction needs switches; devices of a ring or torus have none",
            fix="choose another algorithm than in-network reduction",
        )


def torus(parts: Parts, place: LevelPlace) -> Torus:
    """The links of a ring or torus. Positions of a slice that no device of the job has are chips that only pass on."""
    level, inner = place.level, place.inner
    shape = slice_shape(level, -(-place.size // inner), level.size // inner)
    closed = closed_sides(level, shape)
    volume = math.prod(shape)
    total = volume * place.domains
    one_way = level.links == 1
    up = down = None
    if inner == 1:
        nodes = np.concatenate(
            [np.arange(place.devices), parts.nodes(f"{level.name} idle chip", total - place.devices)]
        )
    else:
        nodes = parts.nodes(f"{level.name} chip", total)
        devices = np.arange(place.devices)
        chips = nodes[devices // inner]
        up, down = parts.join(
            devices, chips, bandwidth=level.bandwidth, latency_s=0.0, level=place.index, lanes=level.links
        )
    # A device's links, half of them either way along each side; of all devices at a position together.
    lanes = max(1, inner * level.links // (2 * len(shape)))
    per_way = level.links if one_way else max(1.0, level.links / (2 * len(shape)))
    position = np.arange(total)
    coordinates = np.stack(np.unravel_index(position % volume, shape)).astype(np.int64)
    table = np.full((total, len(shape), 2), NONE, np.int64)
    for side, length in enumerate(shape):
        for way in (0, 1):
            if length == 1 or (way == 1 and one_way):
                continue
            step = 1 - 2 * way
            wraps = coordinates[side] == (length - 1 if way == 0 else 0)
            # Between two devices there is one link: the closing one would be the same again.
            exists = ~wraps | (closed[side] and (length > 2 or one_way))
            moved = coordinates.copy()
            moved[side] = (moved[side] + step) % length
            if level.twist:
                _twist(moved, shape, side, step, wraps)
            neighbour = position // volume * volume + np.ravel_multi_index(tuple(moved), shape)
            rows = np.flatnonzero(exists)
            table[rows, side, way] = parts.connect(
                nodes[rows], nodes[neighbour[rows]], bandwidth=inner * per_way * level.link_bandwidth,
                latency_s=level.latency_s, level=place.index, lanes=lanes,
            )  # fmt: skip
        if length == 2 and not one_way:  # downwards from the first is the same neighbour as upwards
            first = coordinates[side] == 0
            table[first, side, 1] = table[first, side, 0]
            table[~first, side, 0] = table[~first, side, 1]
    return Torus(
        shape=shape, inner=inner, closed=closed, twisted=level.twist, one_way=one_way, links=table, up=up, down=down
    )


def _twist(moved: Ints, shape: Shape, side: int, step: int, wraps: Flags) -> None:
    """Shifts the closing links of a short side by its length along every side that is twice as long.

    So that n x n x 2n and n x 2n x 2n lose the long way around their long sides. After Camara, Moreto, Vallejo et al.,
    "Twisted torus topologies for enhanced interconnection networks" (2010).
    """
    for other, length in enumerate(shape):
        if length == 2 * shape[side]:
            moved[other] = np.where(wraps, (moved[other] + step * shape[side]) % length, moved[other])
