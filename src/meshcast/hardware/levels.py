"""One `[[levels]]` table of a cluster file: a `NetworkLevel`, with the keys that its topology has and no others."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import cast, get_args

from meshcast.base import Dimension
from meshcast.hardware.cluster import NetworkLevel, Topology, Wrap
from meshcast.hardware.link import TEXTBOOK, LinkTechnology
from meshcast.hardware.reader import Reader

# Keys that only some topologies have. A key that a topology does not have would change nothing, so it is refused.
_OWN_KEYS: dict[str, tuple[Topology, ...]] = {
    "dims": ("torus", "dragonfly"),
    "oversubscription": ("fat-tree",),
    "rails": ("fat-tree",),
    "radix": ("fat-tree", "pcie"),
    "wrap": ("ring", "torus"),
    "twist": ("torus",),
    "global_links": ("dragonfly",),
    "sockets": ("pcie",),
    "socket_bandwidth": ("pcie",),
    "staging_bandwidth": ("pcie",),
}
_NEEDED: dict[str, tuple[str, ...]] = {
    "torus": ("dims",), "dragonfly": ("dims", "global_links"), "fat-tree": ("radix",), "pcie": ("radix",),
}  # fmt: skip


def read_level(file: Reader, index: int, find_link: Callable[[str], LinkTechnology], *, inside: int) -> NetworkLevel:
    """The level at `index`, whose parts hold `inside` devices each; what is wrong with it is told to `file`."""
    key = ("levels", index)
    link = file.text(*key, "link", default="")
    level = NetworkLevel(
        name=file.text(*key, "name"),
        technology=file.text(*key, "technology"),
        topology=cast(Topology, file.choice(*key, "topology", among=get_args(Topology))),
        size=file.count(*key, "size"),
        links=file.count(*key, "links"),
        link_bandwidth=file.quantity(*key, "link_bandwidth", of=Dimension.BANDWIDTH),
        latency_s=file.quantity(*key, "latency", of=Dimension.TIME, may_be_zero=True),
        in_network_reduction=file.flag(*key, "in_network_reduction"),
        dims=file.shape(*key, "dims"),
        link=find_link(link) if link else TEXTBOOK,
        oversubscription=file.ratio(*key, "oversubscription", default=1.0),
        radix=file.count(*key, "radix", default=0),
        rails=file.count(*key, "rails", default=1),
        wrap=cast(Wrap, file.choice(*key, "wrap", among=get_args(Wrap), default="always")),
        twist=file.flag(*key, "twist"),
        global_links=file.count(*key, "global_links", default=0),
        sockets=file.count(*key, "sockets", default=1),
        socket_bandwidth=file.optional(*key, "socket_bandwidth", of=Dimension.BANDWIDTH) or 0.0,
        staging_bandwidth=file.optional(*key, "staging_bandwidth", of=Dimension.BANDWIDTH) or 0.0,
        assumed=file.text(*key, "assumed", default=""),
    )
    _check_keys(file, level, key)
    held = prod(level.dims) * (inside if level.topology == "torus" else 1)
    if level.topology in ("torus", "dragonfly") and level.dims and held != level.size:
        file.reject((*key, "dims"), f"dims holds {held} devices, size says {level.size}")
    if level.topology == "dragonfly" and level.dims:
        _check_dragonfly(file, level, key)
    if level.topology == "fat-tree" and level.radix == 1:
        file.reject((*key, "radix"), "radix is the number of ports of a switch: 2 or more")
    if level.topology == "pcie" and level.sockets > 1 and not level.socket_bandwidth:
        file.reject((*key, "socket_bandwidth"), f"{level.sockets} sockets need a socket_bandwidth between them")
    return level


def _check_keys(file: Reader, level: NetworkLevel, key: tuple[str, int]) -> None:
    written = file.names(*key)
    for name, topologies in _OWN_KEYS.items():
        if name in written and level.topology not in topologies:
            having = " or ".join(topologies)
            file.reject((*key, name), f"{name} belongs to a {having}: topology {level.topology!r} has none")
    for name in _NEEDED.get(level.topology, ()):
        if name not in written:
            file.reject((*key, name), f"missing key {name!r}: a {level.topology} needs it")


def _check_dragonfly(file: Reader, level: NetworkLevel, key: tuple[str, int]) -> None:
    if len(level.dims) != 3:
        file.reject((*key, "dims"), "dims of a dragonfly: devices per router x routers per group x groups")
        return
    _, routers, groups = level.dims
    if level.global_links * routers < groups - 1:
        file.reject(
            (*key, "global_links"),
            f"{routers} routers with {level.global_links} global links each reach {level.global_links * routers} "
            f"groups; {groups} groups need {groups - 1}",
        )
