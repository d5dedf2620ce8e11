"""Parameters without what one class of hardware taught: it is predicted from the others and from its data sheet.

Wire rates, numbers of links and the constants that the library itself publishes stay. A number of a link technology whose source
names the class it was calibrated on is replaced by the median of what its siblings have, technologies of the same family
(NVLinks, networks between hosts, links between TPUs), as far as those were not calibrated on it either; by the library's own
constant where it publishes one. Where no sibling is left the next family is asked, and where there is none the textbook's value
stands: links at their full rate.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from meshcast.hardware import Cluster, Fact, LinkProtocol, LinkTechnology, NetworkLevel, catalogue

# Families of technologies by how their names begin, and which family is asked where one has nobody left.
_FAMILIES = {
    "nvlink": ("nvlink",),
    "network": ("infiniband", "roce", "efa", "slingshot"),
    "staged": ("pcie-staged",),
    "pcie": ("pcie",),
    "infinity-fabric": ("infinity-fabric",),
    "ici": ("ici",),
    "dcn": ("dcn",),
}
_NEXT = {"infinity-fabric": "nvlink", "staged": "pcie", "pcie": "nvlink", "dcn": "network", "network": "nvlink"}
# Fields of a technology, and of one of its protocols, by the keys of their facts.
_FIELDS = {
    "share": "share", "start": "start_s", "pair_start": "pair_start_s", "post": "post_s", "in_network_share": "in_network_share",
    "in_network_start": "in_network_start_s", "in_network_members": "in_network_members", "rings_share": "rings_share",
}  # fmt: skip
_OF_PROTOCOLS = {"share": "share", "step": "step_s", "chunk": "chunk_s", "limit": "limit"}
_HALF = "half of what Simple takes"
_TEXTBOOK = {"share": 1.0, "rings_share": 1.0}
# What the library itself reckons with goes before what siblings have: NCCL's nvlsEfficiency of Blackwell (tuning.cc).
_LIBRARY = {("nvlink-5", "in_network_share"): 0.74, ("nvlink-5-rack", "in_network_share"): 0.74}


def learned_from(fact: Fact, label: str) -> bool:
    """Whether a number comes from measurements of a class of hardware, by what its note says that it was calibrated on."""
    word = re.escape(label.removeprefix("TPU ").split(" PCIe")[0])
    return fact.source != "nccl" and re.search(rf"(?<![A-Za-z0-9]){word}(?![0-9A-Za-z])", fact.note or "") is not None


def without_class(cluster: Cluster, label: str) -> Cluster:
    """A cluster whose links know nothing of measurements of a class of hardware."""
    levels = [
        replace(level, link=_technology(level.link, label), latency_s=_latency(cluster, index, level, label))
        for index, level in enumerate(cluster.levels)
    ]
    return replace(cluster, levels=tuple(levels))


@cache
def _technology(link: LinkTechnology, label: str) -> LinkTechnology:
    changes: dict[str, Any] = {
        field: _pooled(link, key, label)
        for key, field in _FIELDS.items()
        if key in link.facts and learned_from(link.facts[key], label)
    }
    if "in_network_members" in changes:
        changes["in_network_members"] = int(changes["in_network_members"])
    protocols = [_protocol(link, index, label) for index in range(len(link.protocols))]
    simple = {each.name: each for each in protocols}.get("Simple")
    halved = [
        replace(each, chunk_s=simple.chunk_s / 2)
        if simple is not None and (link.facts[f"protocols.{index}.chunk"].note or "").startswith(_HALF)
        else each
        for index, each in enumerate(protocols)
    ]
    return replace(link, **changes, protocols=tuple(halved))


def _protocol(link: LinkTechnology, index: int, label: str) -> LinkProtocol:
    changes: dict[str, Any] = {
        field: _pooled(link, f"protocols.{index}.{key}", label)
        for key, field in _OF_PROTOCOLS.items()
        if (fact := link.facts.get(f"protocols.{index}.{key}")) is not None and learned_from(fact, label)
    }
    return replace(link.protocols[index], **changes)


def _pooled(link: LinkTechnology, key: str, label: str) -> float:
    """The median of a number over the siblings that did not learn it from a class."""
    family = _family(link.name)
    if (link.name, key) in _LIBRARY:
        return _LIBRARY[link.name, key]
    while family is not None:
        found = [
            fact.value
            for other in _members(family)
            if other.name != link.name
            and (fact := _same(link, key, other)) is not None
            and not learned_from(fact, label)
        ]
        if found:
            return statistics.median(found)
        family = _NEXT.get(family)
    return _TEXTBOOK.get(key, 0.0)


def _same(link: LinkTechnology, key: str, other: LinkTechnology) -> Fact | None:
    """The fact of another technology that stands for the same: protocols are found by their names."""
    if not key.startswith("protocols."):
        return other.facts.get(key)
    _, index, name = key.split(".")
    wanted = link.protocols[int(index)].name
    place = next((place for place, each in enumerate(other.protocols) if each.name == wanted), None)
    return None if place is None else other.facts.get(f"protocols.{place}.{name}")


def _family(name: str) -> str | None:
    return next((family for family, heads in _FAMILIES.items() if name.startswith(heads)), None)


@cache
def _members(family: str) -> tuple[LinkTechnology, ...]:
    return tuple(link for link in catalogue().links if _family(link.name) == family)


def _latency(cluster: Cluster, index: int, level: NetworkLevel, label: str) -> float:
    """The latency of a hop: that of other clusters with links of the family where it was calibrated on the class."""
    fact = cluster.facts.get(f"levels.{index}.latency")
    if fact is None or not learned_from(fact, label):
        return level.latency_s
    found = list(_latencies(_family(level.link.name), label))
    return statistics.median(found) if found else level.latency_s


def _latencies(family: str | None, label: str) -> Iterator[float]:
    for other in catalogue().clusters:
        for index, level in enumerate(other.levels):
            fact = other.facts.get(f"levels.{index}.latency")
            if _family(level.link.name) == family and fact is not None and not learned_from(fact, label):
                yield level.latency_s
