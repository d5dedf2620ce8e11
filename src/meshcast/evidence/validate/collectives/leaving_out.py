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
# What the library itself reckons with goes before what siblings have, by how names of technologies begin. NCCL's rates of
# links (topo.h): 20, 20, 20.6 and 40.1 GB/s of an NVLink of 25, 25, 25 and 50, 12 of PCIe 3 x16 (16 GB/s), 12 of a card of
# 100 Gbit/s; its nvlsEfficiency, and the base latencies of rings: 6.6 us with LL, 14 with LL128, 8.4 with Simple (tuning.cc).
# Staged in host memory, cards behind one PCIe switch share its way up (NCCL's issue 1086), usually four of them (its issue
# 1639, nccl-tests' issue 307), and a slice of Simple is written whole before it is read: two of eight steps of a buffer of 4
# MiB (init.cc, collectives.h), on PCIe 4. Lines of LL are polled there, a read over PCIe for each: the 1 us that NCCL reckons
# a hop with LL over PCIe to take (tuning.cc). Cards write into buffers that are known, eight steps under way at once
# (NCCL_STEPS): a chunk takes an eighth of the 14 us that NCCL reckons a step of a ring between hosts to take (tuning.cc), as
# Amazon's plug-in does of its own latencies. Between slices of TPUs: PaLM's two pods of v4 exchange gradients in bursts of 81
# Tbit/s over 1,536 hosts of 200 Gbit/s each (Chowdhery 2022, section 4; the catalogue's rate of a host).
_STAGED = 12 / 16 / 4
_KNOWN_BUFFERS = 14e-6 / 8
_LIBRARY = {
    "nvlink-2": {"share": 20 / 25},
    "nvlink-3": {"share": 20 / 25},
    "nvlink-4": {"share": 20.6 / 25, "in_network_share": 0.85},
    "nvlink-5": {"share": 40.1 / 50, "in_network_share": 0.74},
    "nvlink": {"start": 6.6e-6, "LL128.start": 7.4e-6, "Simple.start": 1.8e-6},
    "pcie-staged": {"share": _STAGED, "LL.chunk": 1e-6, "Simple.chunk": 2**20 / (32e9 * _STAGED)},
    "pcie": {"share": 12 / 16, "start": 6.6e-6},
    "infiniband": {"share": 12 / 12.5, "Simple.chunk": _KNOWN_BUFFERS},
    "roce": {"share": 12 / 12.5, "Simple.chunk": _KNOWN_BUFFERS},
    "efa": {"share": 12 / 12.5},
    "dcn": {"share": 81e12 / 1536 / 200e9},
}


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
    # A start that was measured is one of all protocols; the library's own is LL's, and others take longer.
    if "start" in link.facts and learned_from(link.facts["start"], label):
        changes["start_s"] = next(iter(_published(link, f"{link.protocols[index].name}.start")), 0.0)
    return replace(link.protocols[index], **changes)


def _published(link: LinkTechnology, called: str) -> list[float]:
    """What the library publishes of a number of a technology: nothing, or that of the longest name that fits first."""
    return [known[called] for head, known in _LIBRARY.items() if link.name.startswith(head) and called in known]


def _pooled(link: LinkTechnology, key: str, label: str) -> float:
    """The median of a number over the siblings that did not learn it from a class."""
    family = _family(link.name)
    called = _by_protocol(link, key)
    if published := _published(link, called):
        return published[0]
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


def _by_protocol(link: LinkTechnology, key: str) -> str:
    """A number's key with the name of its protocol in place of the protocol's number."""
    if not key.startswith("protocols."):
        return key
    _, index, name = key.split(".")
    return f"{link.protocols[int(index)].name}.{name}"


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
    # Links of the same generation first: a rack's are those of a board.
    alike = list(_latencies(_generation(level.link.name), label))
    found = alike or list(_latencies(_FAMILIES[_family(level.link.name) or "network"], label))
    return statistics.median(found) if found else level.latency_s


def _generation(name: str) -> tuple[str, ...]:
    return ("-".join(name.split("-")[:2]),)


def _latencies(heads: tuple[str, ...], label: str) -> Iterator[float]:
    """The latencies of levels whose links' names begin so, as far as they know nothing of a class."""
    for other in catalogue().clusters:
        for index, level in enumerate(other.levels):
            fact = other.facts.get(f"levels.{index}.latency")
            if level.link.name.startswith(heads) and fact is not None and not learned_from(fact, label):
                yield level.latency_s
