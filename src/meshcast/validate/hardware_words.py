"""Hardware from the words of a source: a device by its name, a host by its cloud's, a network by its words and card rates."""

from __future__ import annotations

import re
from dataclasses import replace

from meshcast.errors import UnsupportedError
from meshcast.hardware import Cluster, NetworkLevel, load_cluster, load_device, load_link

# What a name means, the more special ones first: (pattern, cluster, the class that errors are told by).
_NAMED = (
    (r"gb300", "gb300-nvl72", "GB300"),
    (r"gb200", "gb200-nvl72", "GB200"),
    (r"\bp6e?-b300", "dgx-b300", "B300"),
    (r"b300", "dgx-b300", "B300"),
    (r"\bp6-b200", "aws-p6-b200", "B200"),
    (r"b200", "dgx-b200", "B200"),
    (r"\bp5en?\b(?<!p5)", "aws-p5en", "H200"),
    (r"(?<!g)h200|\ba3[- ]ultra", "dgx-h200", "H200"),
    (r"h100.*pcie|pcie.*h100", "h100-pcie-server", "H100 PCIe"),
    (r"\bp5\b", "aws-p5", "H100"),
    (r"(?<!g)h[18]00|\ba3[- ](?:high|mega)", "dgx-h100", "H100"),
    (r"\bp4de", "aws-p4de", "A100"),
    (r"\bp4dn?\b", "aws-p4d", "A100"),
    (r"a100.*pcie|pcie.*a100", "a100-pcie-server", "A100 PCIe"),
    (r"a100.*40 ?gb", "dgx-a100-40gb", "A100"),
    (r"\ba[18]00", "dgx-a100", "A100"),
    (r"l40s", "l40s-server", "L40S"),
    (r"\brtx|\bl40?\b|\ba(?:10g?|40)\b|\bt4\b", "l40s-server", "PCIe card"),
    (r"dgx-2\b", "dgx-2", "V100"),
    (r"v100|dgx-1\b|\bp3(?:dn)?\b", "dgx-v100", "V100"),
    (r"mi300x?", "mi300x-node", "MI300X"),
    (r"mi250x?", "mi250x-node", "MI250X"),
    (r"tpu ?-?v?7x?|ironwood", "tpu-v7-core-pod", "TPU v7"),
    (r"v6e|trillium", "tpu-v6e-pod", "TPU v6e"),
    (r"v5p", "tpu-v5p-pod", "TPU v5p"),
    (r"v5e|v5 ?lite", "tpu-v5e-pod", "TPU v5e"),
    (r"tpu ?-?v4", "tpu-v4-pod", "TPU v4"),
    (r"tpu ?-?v3", "tpu-v3-pod", "TPU v3"),
    (r"pcie ?-?(gen)? ?5", "h100-pcie-server", "PCIe"),
    (r"pcie ?-?(gen)? ?[34]", "a100-pcie-server", "PCIe"),
    (r"rdma|infiniband|roce", "dgx-h100", "network card"),
)
# Networks by their words, and the technology of their links.
_NETWORKS = ((r"\befa\b", None), (r"\broce\b|ethernet", "roce"), (r"infiniband|\bib\b|[nhx]dr\b", "infiniband"))
_EFA = {"A100": "efa-1", "V100": "efa-1"}  # cards of their time; later ones have the second generation
_CARDS = re.compile(r"(?:\b(\d+) ?x ?|\b)(\d+) ?G(?:b|bit|bps)?(?:/s)?\b")  # GB are bytes of memory
_CARD = 800  # Gbit/s of the fastest card there is: more than that is said of a whole host
# Devices of one cluster's network that differ in memory or power.
_VARIANTS = (
    (r"v100.*\b16 ?gb", "v100-sxm2-16gb"),
    (r"h100.*(?:\b96 ?gb|\b500 ?w)", "h100-sxm-500w"),
)


def named_cluster(words: str, *, where: str) -> tuple[Cluster, str]:
    """The cluster that words name, and the class that errors are told by.

    Raises:
        UnsupportedError: No rule understands them.
    """
    text = words.lower()
    found = next(((name, label) for pattern, name, label in _NAMED if re.search(pattern, text)), None)
    if found is None:
        raise UnsupportedError(f"no rule understands the hardware {words!r}", where=where)
    cluster = load_cluster(found[0])
    variant = next((name for pattern, name in _VARIANTS if re.search(pattern, text)), None)
    return (replace(cluster, device=load_device(variant)) if variant else cluster), found[1]


def worded_network(level: NetworkLevel, words: str, label: str, size: int, *, shared: bool = False) -> NetworkLevel:
    """The level between hosts of `size` devices, with what the words say of it.

    Args:
        level: As the cluster has it.
        words: The source's.
        label: The class of hardware.
        size: Devices of a host.
        shared: The rate is of one card that the host's devices share.
    """
    for pattern, name in _NETWORKS:
        if re.search(pattern, words.lower()):
            level = replace(level, link=load_link(name or _EFA.get(label, "efa-2")))
            break
    cards = _CARDS.search(words)
    if cards is None:
        return level
    rate = int(cards[2]) * 1e9 / 8
    if cards[1] or shared or int(cards[2]) > _CARD:
        rate *= int(cards[1] or 1) / size  # of a whole host
    return replace(level, links=1, link_bandwidth=rate)
