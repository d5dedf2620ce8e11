"""A user's own graph: nodes and links in a TOML file, with rates of their own, read into a `Fabric`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshcast.base import Dimension, InputError, nearest
from meshcast.hardware import HEALTHY, Cluster, Conditions, NetworkLevel, Reader, check_conditions, document
from meshcast.network.fabric.fabric import Fabric
from meshcast.network.fabric.links import Floats, Ints, Parts
from meshcast.network.fabric.state import capacities
from meshcast.network.fabric.wiring import Routing

FABRIC_SCHEMA = "meshcast.fabric/1"
MOST_NODES = 1 << 20  # of one kind: each has a name of its own
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GraphFile:
    """A fabric from a file, and the speeds of its devices that are not equal to the others'."""

    fabric: Fabric
    speed: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Links:
    source: Ints
    target: Ints
    bandwidth: float
    latency_s: float
    kind: str
    lanes: int


def read_fabric(path: Path, cluster: Cluster | None = None, conditions: Conditions = HEALTHY) -> GraphFile:
    """The graph in the file at `path`.

    With a `cluster`, its levels say which devices lie in one node, as plans of collectives on it take for granted, and
    kinds of links that are named like a level belong to it. Without one, every kind of link is a level of its own name
    that spans all devices; the widest kind stands for the innermost.

    Raises:
        InputError: The file cannot be read, or does not follow the schema.
    """
    file = Reader(document.read_document(path))
    file.choice("schema", among=(FABRIC_SCHEMA,))
    name = file.text("name")
    devices = file.count("devices", most=MOST_NODES)
    parts = Parts(devices=devices)
    names: dict[str, Ints] = {str(number): np.array([number]) for number in range(devices)}
    for index in range(file.length("nodes")):
        _add_nodes(file, parts, names, index)
    links = [_links(file, names, devices, index) for index in range(file.length("links"))]
    speed: dict[int, float] = {}
    for index in range(file.length("speeds")):
        share = file.ratio("speeds", index, "share", default=1.0)
        for node in _nodes(file, names, devices, ("speeds", index, "devices")):
            if node >= devices:
                file.reject(("speeds", index, "devices"), f"{parts.node_names[node]} is no device")
            speed[int(node)] = share
    if not links:
        file.reject(("links",), "missing key 'links'")
    file.finish()
    levels = cluster.levels if cluster else _levels(links, devices)
    known = {level.name: index for index, level in enumerate(levels)}
    for number, one in enumerate(links):
        if one.kind not in known:
            raise InputError(
                f"links of kind {one.kind!r}: {cluster.name if cluster else name} has no such level",
                where=str(path), fix=f"name the level they belong to in links {number}: {nearest(one.kind, known)}",
            )  # fmt: skip
        parts.connect(
            one.source, one.target, bandwidth=one.bandwidth, latency_s=one.latency_s, level=known[one.kind],
            lanes=one.lanes,
        )  # fmt: skip
    if cluster:
        check_conditions(conditions, cluster, devices)
    columns = parts.finished()
    fabric = Fabric(
        name=name,
        devices=devices,
        levels=levels,
        node_names=tuple(parts.node_names),
        links=columns,
        capacity=capacities(columns, devices, levels, conditions),
        wirings=(None,) * len(levels),
        routing=Routing(spreading="hash"),
    )
    return GraphFile(fabric=fabric, speed=speed)


def _add_nodes(file: Reader, parts: Parts, names: dict[str, Ints], index: int) -> None:
    key = ("nodes", index)
    name, kind = file.text(*key, "name"), file.text(*key, "kind", default="switch")
    count = file.count(*key, "count", default=1, most=MOST_NODES)
    if name in names or not name or _RANGE.fullmatch(name) or name.isdecimal():
        file.reject((*key, "name"), f"{name!r} cannot name a node: a name of its own, and no number")
        return
    added = parts.nodes(f"{kind} {name}", count)
    names[name] = added
    names.update({f"{name}.{number}": added[number : number + 1] for number in range(count)})


def _nodes(file: Reader, names: dict[str, Ints], devices: int, key: tuple[str | int, ...]) -> Ints:
    """The nodes that a list names: devices by number or "0..7", nodes by name, one of several by "leaf.2"."""
    found: list[Ints] = []
    for text in file.texts(*key):
        if spanned := _RANGE.fullmatch(text):
            first, last = int(spanned[1]), int(spanned[2])
            # Only the first name beyond the last device is looked up: it is enough to be told of.
            numbers: Iterable[str] = map(str, range(first, min(last, max(first, devices)) + 1))
        else:
            numbers = (text,)
        for one in numbers:
            if one not in names:
                file.reject(key, f"no node {one!r}, {nearest(one, names)}")
            else:
                found.append(names[one])
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _links(file: Reader, names: dict[str, Ints], devices: int, index: int) -> _Links:
    key = ("links", index)
    low, high = _nodes(file, names, devices, (*key, "from")), _nodes(file, names, devices, (*key, "to"))
    if not len(low) or not len(high):
        file.reject(key, "a table of links has nodes in 'from' and in 'to'")
    source, target = np.repeat(low, len(high)), np.tile(high, len(low))
    apart = source != target
    source, target = source[apart], target[apart]
    if not file.flag(*key, "one_way"):
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        # Links from a list to itself name every pair twice.
        source, target = np.unique(np.stack([source, target]), axis=1)
    lanes = file.count(*key, "count", default=1)
    return _Links(
        source=source,
        target=target,
        bandwidth=lanes * file.quantity(*key, "bandwidth", of=Dimension.BANDWIDTH),
        latency_s=file.optional(*key, "latency", of=Dimension.TIME, may_be_zero=True) or 0.0,
        kind=file.text(*key, "kind"),
        lanes=lanes,
    )


def _levels(links: list[_Links], devices: int) -> tuple[NetworkLevel, ...]:
    """A level for each kind of link: what the slowest device sends over it, and the longest latency of one link."""
    found: list[NetworkLevel] = []
    for kind in dict.fromkeys(one.kind for one in links):
        own = [one for one in links if one.kind == kind]
        sent: Floats = np.zeros(devices)
        for one in own:
            from_devices = one.source[one.source < devices]
            sent += np.bincount(from_devices, minlength=devices) * one.bandwidth
        rate = sent[sent > 0].min(initial=np.inf)
        if rate == np.inf:  # between switches only
            rate = min(one.bandwidth for one in own)
        found.append(
            NetworkLevel(
                name=kind,
                technology=kind,
                topology="switch",
                size=devices,
                links=1,
                link_bandwidth=float(rate),
                latency_s=max(one.latency_s for one in own),
            )
        )
    return tuple(sorted(found, key=lambda level: -level.bandwidth))
