"""Rings, tori and meshes of devices that pass on what is not for them, with routes one dimension after the other.

Dimension-order routing takes the shorter way around each side; where both are equally long, half of the bytes take
each. After Dally and Towles, "Principles and Practices of Interconnection Networks" (2004), chapters 3, 5 and 8.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from meshcast.errors import InfeasibleError, UnsupportedError
from meshcast.hardware import NetworkLevel
from meshcast.network.fabric.links import NONE, Flags, Ints, Parts, Paths
from meshcast.network.fabric.wiring import Place, ones

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Torus:
    """Neighbours along each side of a shape, row-major: the last side varies fastest.

    Attributes:
        shape: Sides of one domain.
        closed: Which sides have a wrap-around link.
        twisted: Whether closing links are shifted along another side, so that no order of sides leads anywhere.
        one_way: Whether links lead upwards only, as on a ring of devices with one link each.
        nodes: Node at each position of each domain.
        links: Link from position p along side d upwards or downwards: `links[p, d, 0 or 1]`, NONE at an open end.
    """

    shape: Shape
    closed: tuple[bool, ...]
    twisted: bool
    one_way: bool
    nodes: Ints
    links: Ints

    @property
    def volume(self) -> int:
        """Positions of one domain."""
        return math.prod(self.shape)

    def coordinates(self, device: Ints) -> Ints:
        """A row a side: where devices lie in their domain."""
        return np.stack(np.unravel_index(device % self.volume, self.shape)).astype(np.int64)

    def paths(self, source: Ints, target: Ints) -> Paths:
        """Shortest ways, side by side; the first side first."""
        flow, here, share = np.arange(len(source)), source.copy(), ones(len(source))
        there = target.copy()
        parts: list[Paths] = []
        for side, length in enumerate(self.shape):
            stride = math.prod(self.shape[side + 1 :])
            ahead = (there // stride - here // stride) % length
            if self.one_way:
                forward, split = np.ones(len(flow), bool), np.zeros(len(flow), bool)
            elif self.closed[side]:
                forward, split = 2 * ahead <= length, (2 * ahead == length) & (length > 2)
            else:
                forward, split = there // stride % length >= here // stride % length, np.zeros(len(flow), bool)
            # Both ways around are equally long: a second half of the flow takes the other one.
            flow, here, there = (np.concatenate([column, column[split]]) for column in (flow, here, there))
            share[split] /= 2
            share, ahead = np.concatenate([share, share[split]]), np.concatenate([ahead, ahead[split]])
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

    def reduction(self, sets: Ints, member: Ints) -> tuple[Ints, Ints]:
        """There is no switch that could add.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("in-network reduction needs switches; devices of a ring or torus have none")


def torus(parts: Parts, place: Place) -> Torus:
    """The links of a ring or torus. Positions of a slice that no device of the job has are chips that only pass on."""
    level = place.level
    shape = slice_shape(level, place.size)
    closed = tuple(_closes(level, side, whole) for side, whole in zip(shape, level.dims or shape, strict=True))
    volume = math.prod(shape)
    total = volume * place.domains
    idle = parts.nodes(f"{level.name} idle chip", total - place.devices)
    nodes = np.concatenate([np.arange(place.devices), idle])
    # A device's links, half of them either way along each side.
    one_way = level.links == 1
    lanes = max(1, level.links // (2 * len(shape)))
    rate = level.bandwidth if one_way else max(1.0, level.links / (2 * len(shape))) * level.link_bandwidth
    position = np.arange(total)
    coordinates = np.stack(np.unravel_index(position % volume, shape))
    table = np.full((total, len(shape), 2), NONE, np.int64)
    for side, length in enumerate(shape):
        if length == 1:
            continue
        for way in (0, 1):
            if way == 1 and one_way:
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
                nodes[rows], nodes[neighbour[rows]], bandwidth=rate, latency_s=level.latency_s,
                level=place.index, lanes=lanes,
            )  # fmt: skip
        if length == 2 and not one_way:  # downwards from the first is the same neighbour as upwards
            first = coordinates[side] == 0
            table[first, side, 1] = table[first, side, 0]
            table[~first, side, 0] = table[~first, side, 1]
    return Torus(shape=shape, closed=closed, twisted=level.twist, one_way=one_way, nodes=nodes, links=table)


def slice_shape(level: NetworkLevel, devices: int) -> Shape:
    """The smallest slice of a ring or torus that holds so many devices; among these the one with the most even sides.

    Raises:
        InfeasibleError: The devices do not fit.
    """
    if level.topology == "ring":
        return (devices,)
    if devices == level.size:
        return level.dims
    shapes = itertools.product(*(range(1, side + 1) for side in level.dims[:-1]))
    fitting = [
        (*shape, last) for shape in shapes if (last := -(-devices // math.prod(shape))) <= level.dims[-1]
    ]  # fmt: skip
    if not fitting:
        raise InfeasibleError(f"{devices} devices do not fit into a torus of {'x'.join(map(str, level.dims))}")
    # With equal volumes, fewer links to go; with equal lengths, short sides first, as slices are usually written.
    return min(fitting, key=lambda shape: (math.prod(shape), sum(shape), shape))


def _closes(level: NetworkLevel, side: int, whole: int) -> bool:
    if level.wrap == "full-axis":
        return side == whole
    return level.wrap == "always" or (level.wrap == "multiples-of-4" and side % 4 == 0)


def _twist(moved: Ints, shape: Shape, side: int, step: int, wraps: Flags) -> None:
    """Shifts the closing links of a short side by its length along every side that is twice as long.

    So that n x n x 2n and n x 2n x 2n lose the long way around their long sides. After Camara, Moreto, Vallejo et al.,
    "Twisted torus topologies for enhanced interconnection networks" (2010).
    """
    for other, length in enumerate(shape):
        if length == 2 * shape[side]:
            moved[other] = np.where(wraps, (moved[other] + step * shape[side]) % length, moved[other])
