"""ASTRA-sim's `network.yml`: the dimensions of a network, read, written, and turned from and into a `Cluster`.

    topology: [ FullyConnected, Switch ]   # Ring, FullyConnected or Switch for each dimension, innermost first
    npus_count: [ 8, 16 ]
    bandwidth: [ 400.0, 25.0 ]             # GB/s of one link, a GB being 2**30 bytes
    latency: [ 200.0, 1000.0 ]             # ns of one hop

Its YAML is lists of words and numbers under four keys, in brackets or one item a line; nothing more is read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar, get_args

from meshcast.base import InputError, UnsupportedError, UsageError, nearest, unreadable
from meshcast.hardware.cluster import Cluster, NetworkLevel, Topology, single
from meshcast.hardware.device import Device

Shape = Literal["Ring", "FullyConnected", "Switch"]
ASTRA_SHAPES: tuple[Shape, ...] = get_args(Shape)
ASTRA_TECHNOLOGY = "ASTRA-sim"
SUFFIXES = (".yml", ".yaml")
KEYS = ("topology", "npus_count", "bandwidth", "latency")
GB = 1 << 30
MOST_NPUS = 1 << 15  # of a dimension: a ring is simulated step by step, eight seconds of so many

_TOPOLOGIES: dict[Shape, Topology] = {"Ring": "ring", "FullyConnected": "full", "Switch": "switch"}
_KEY = re.compile(r"(?P<key>[\w-]+)\s*:\s*(?P<rest>.*)")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraDimension:
    """One dimension of a network: NPUs that differ in this coordinate alone, and the links between them.

    Attributes:
        shape: How they are wired. On a Switch every NPU has one link there and back, on a Ring one either way to each
            neighbour, FullyConnected one to every other NPU.
        npus: How many there are.
        bandwidth: 2**30 bytes/s of one link.
        latency_ns: Of one hop.
    """

    shape: Shape
    npus: int
    bandwidth: float
    latency_ns: float

    @property
    def bytes_per_ns(self) -> float:
        """The bandwidth, in the order of operations that ASTRA-sim has: whole nanoseconds are cut off later."""
        return self.bandwidth * GB / 1_000_000_000

    def hops(self, distance: int) -> int:
        """Links between two NPUs whose coordinates differ by so much; a ring takes the shorter way."""
        if self.shape == "Ring":
            return min(distance, self.npus - distance)
        return 2 if self.shape == "Switch" else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraNetwork:
    """The dimensions of a network, innermost first: the first varies fastest along the numbers of NPUs."""

    dimensions: tuple[AstraDimension, ...]

    @property
    def npus(self) -> int:
        """NPUs in all."""
        return math.prod(dimension.npus for dimension in self.dimensions)


def read_network(path: Path) -> AstraNetwork:
    """The network in a file.

    Raises:
        InputError: It cannot be read, a key is unknown or missing, or the lists do not go together.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    lists: dict[str, tuple[int, list[str]]] = {}
    for line, key, items in _lists(text, path):
        if key not in KEYS:
            raise InputError(f"unknown key {key!r}", where=f"{path}:{line}", fix=nearest(key, KEYS))
        if key in lists:
            raise InputError(f"{key} is given twice", where=f"{path}:{line}", fix="keep one of them")
        lists[key] = (line, items)
    if missing := [key for key in KEYS if key not in lists]:
        raise InputError(f"no {', '.join(missing)}", where=str(path), fix="the keys are " + ", ".join(KEYS))
    count = len(lists["topology"][1])
    for key, (line, items) in lists.items():
        if len(items) != count or not items:
            raise InputError(
                f"{key} has {len(items)} values, topology names {count} dimensions",
                where=f"{path}:{line}", fix="give one value for each dimension",
            )  # fmt: skip
    shapes = _values(lists, "topology", path, _shape)
    npus = _values(lists, "npus_count", path, _whole)
    bandwidths = _values(lists, "bandwidth", path, lambda text: _number(text, least=1e-9, most=1e15))
    latencies = _values(lists, "latency", path, lambda text: _number(text, least=0.0, most=1e15))
    made = zip(shapes, npus, bandwidths, latencies, strict=True)
    return AstraNetwork(
        dimensions=tuple(AstraDimension(shape=s, npus=n, bandwidth=b, latency_ns=ns) for s, n, b, ns in made)
    )


def network_text(network: AstraNetwork) -> str:
    """The network as a file."""
    columns = zip(*((d.shape, d.npus, d.bandwidth, d.latency_ns) for d in network.dimensions), strict=True)
    return "".join(f"{key}: [ {', '.join(map(str, column))} ]\n" for key, column in zip(KEYS, columns, strict=True))


def network_cluster(network: AstraNetwork, device: Device, *, name: str) -> Cluster:
    """A cluster of these devices on this network, a level for each dimension.

    A step over a switch passes two links, each with the latency of a hop.
    """
    levels = []
    size = 1
    for number, dimension in enumerate(network.dimensions):
        size *= dimension.npus
        level = NetworkLevel(
            name=f"dim{number}", technology=ASTRA_TECHNOLOGY, topology=_TOPOLOGIES[dimension.shape], size=size,
            links={"Ring": min(2, dimension.npus - 1), "FullyConnected": dimension.npus - 1, "Switch": 1}[dimension.shape],
            link_bandwidth=dimension.bandwidth * GB,
            latency_s=dimension.latency_ns * dimension.hops(1) * 1e-9,
        )  # fmt: skip
        levels.append(level)
    title = f"{network.npus} x {device.name} on {' x '.join(d.shape for d in network.dimensions)}"
    return replace(single(device), name=name, title=title, levels=tuple(levels), max_devices=network.npus)


def cluster_network(cluster: Cluster, devices: int) -> AstraNetwork:
    """The dimensions of `devices` devices of a cluster, packed densely; a torus has one for each of its sides.

    Raises:
        UsageError: The cluster has not so many.
        UnsupportedError: They do not fill the domains of a level evenly: ASTRA-sim's networks are products.
    """
    dimensions: list[AstraDimension] = []
    inside = 1
    levels = cluster.for_devices(devices).levels
    for level in levels:
        size = min(level.size, devices)
        if size % inside or devices % size:
            raise UnsupportedError(
                f"{devices} devices do not fill the level {level.name} of {cluster.name} evenly, in domains of {size}: "
                "ASTRA-sim's networks are products of dimensions",
                fix=f"use a multiple of {level.size if devices > level.size else inside} devices",
            )
        dimensions += level_dimensions(level, size // inside, inside=inside)
        inside = size
    if not dimensions:
        raise UsageError(f"{devices} device of {cluster.name} has no network", fix="use 2 devices or more")
    return AstraNetwork(dimensions=tuple(dimensions))


def level_dimensions(level: NetworkLevel, parts: int, *, inside: int) -> Iterator[AstraDimension]:
    """The dimensions that `parts` domains of `inside` devices each form inside a level.

    Whatever is neither a ring, a torus nor a full mesh becomes a Switch, the closest that ASTRA-sim has. Where such a level
    has less beyond a device's own switch (an oversubscribed fat tree, a dragonfly, PCIe) and the parts do not all fit under
    one, every device of the Switch has the rate that is left when all send beyond theirs at once.
    """
    nanoseconds = round(level.latency_s * 1e9, 6)  # without what the change of units adds to it
    rate = level.link_bandwidth / GB
    if level.topology in ("ring", "torus"):
        extents = level.dims or (parts,)
        bandwidth = rate * max(1.0, level.links / (2 * len(extents)))
        for side in even_sides(parts, extents):
            yield AstraDimension(shape="Ring", npus=side, bandwidth=bandwidth, latency_ns=nanoseconds)
    elif level.topology == "full":
        bandwidth = level.links * rate / max(1, parts - 1)
        yield AstraDimension(shape="FullyConnected", npus=parts, bandwidth=bandwidth, latency_ns=nanoseconds)
    else:
        beyond = parts * inside > level.devices_per_leaf
        bandwidth = (level.effective_bandwidth if beyond else level.bandwidth) / GB
        yield AstraDimension(shape="Switch", npus=parts, bandwidth=bandwidth, latency_ns=nanoseconds / 2)


def even_sides(parts: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The sides, larger than 1, of a box of `parts` inside `extents` whose longest side is the shortest.

    Raises:
        UnsupportedError: There is no such box.
    """

    def boxes(left: int, within: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not within:
            if left == 1:
                yield ()
            return
        for side in range(1, min(left, within[0]) + 1):
            if left % side == 0:
                yield from ((side, *others) for others in boxes(left // side, within[1:]))

    found = min(boxes(parts, extents), key=lambda box: (max(box), box), default=None)
    if found is None:
        raise UnsupportedError(
            f"{parts} devices form no box inside {' x '.join(map(str, extents))}", fix="use a product of smaller sides"
        )
    return tuple(side for side in found if side > 1)


def _lists(text: str, path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line, key, items) of every list."""
    lines = [(number, line.split("#")[0].rstrip()) for number, line in enumerate(text.splitlines(), 1)]
    left = [(number, line) for number, line in lines if line.strip() and line.strip() != "---"]
    while left:
        number, line = left.pop(0)
        found = _KEY.fullmatch(line)
        if found is None:
            raise InputError(
                f"{line.strip()!r} is not KEY: [ LIST ]",
                where=f"{path}:{number}",
                fix="write topology: [ Ring, Switch ]",
            )
        rest = found["rest"]
        while rest.startswith("[") and not rest.endswith("]") and left:
            rest += " " + left.pop(0)[1].strip()
        if rest.startswith("[") and rest.endswith("]"):
            items = [item.strip() for item in rest[1:-1].split(",")]
            if items[-1] == "":  # nothing between the brackets, or after the last comma
                items.pop()
        elif not rest:
            items = []
            while left and left[0][1].lstrip().startswith("-"):
                items.append(left.pop(0)[1].lstrip()[1:].strip())
        else:
            raise InputError(
                f"{found['key']} is {rest!r}, not a list", where=f"{path}:{number}",
                fix=f"write {found['key']}: [ {rest} ]",
            )  # fmt: skip
        yield number, found["key"], [item.strip("\"'") for item in items]


def _values(
    lists: dict[str, tuple[int, list[str]]], key: str, path: Path, parse: Callable[[str], T]
) -> tuple[T, ...]:  # fmt: skip
    line, items = lists[key]
    try:
        return tuple(map(parse, items))
    except ValueError as error:
        raise InputError(f"{key}: {error}", where=f"{path}:{line}") from None


def _shape(text: str) -> Shape:
    for shape in ASTRA_SHAPES:
        if shape == text:
            return shape
    raise ValueError(f"no topology {text!r}; {nearest(text, ASTRA_SHAPES)}")


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 2 <= int(text) <= MOST_NPUS:
        raise ValueError(f"{text!r} is no number of NPUs: a dimension has 2 or more, up to {MOST_NPUS}")
    return int(text)


def _number(text: str, *, least: float, most: float) -> float:
    value = float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) else math.nan
    if not (least <= value <= most):
        raise ValueError(f"{text!r} is no number of {least:g} to {most:g}")
    return value
