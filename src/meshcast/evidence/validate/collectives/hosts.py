"""Devices and hosts by the words that sources use for them, and the network cards that such a host has.

A device's line names the catalogue's cluster that it usually stands in; a host's line is what a vendor or a cloud sells under
a name of its own. Cards: of a DGX its datasheet, as in the catalogue's cluster files; of EC2, Azure and Google Cloud
their pages of instance types (docs.aws.amazon.com/ec2/latest/instancetypes/ac.html; learn.microsoft.com/azure, sizes of
the ND family; docs.cloud.google.com/compute/docs/gpus/gpu-network-bandwidth).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from meshcast.base import UnsupportedError

Fabric = Literal["infiniband", "roce", "tcp", "efa-1", "efa-2", "efa-3", "efa-4", "slingshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine with devices in it.

    Attributes:
        cluster: The catalogue's cluster of such machines, or of the ones most like them.
        label: The class that errors are told by.
        devices: The devices of one machine, or of one rack where that is one NVLink domain.
        cards: Network cards for them.
        gbit: Gbit/s of one card.
        fabric: What the cards are; the technology of the cluster's own network where it is empty.
        sold: The name of a cloud's instance or of one machine: what it has is known, and words that say otherwise are wrong.
        switched: Whether switches join devices that the cluster's own hosts wire to each other.
    """

    cluster: str
    label: str
    devices: int = 8
    cards: int = 8
    gbit: float = 400.0
    fabric: Fabric | None = None
    sold: str = ""
    switched: bool = False


_V100 = Host(cluster="dgx-v100", label="V100", cards=4, gbit=100)
_A100 = Host(cluster="dgx-a100", label="A100", gbit=200)
_A100_SMALL = replace(_A100, cluster="dgx-a100-40gb")
_H100 = Host(cluster="dgx-h100", label="H100")
_H200 = Host(cluster="dgx-h200", label="H200")
_B200 = Host(cluster="dgx-b200", label="B200")
_B300 = Host(cluster="dgx-b300", label="B300", gbit=800)
_GB200 = Host(cluster="gb200-nvl72", label="GB200", devices=72, cards=72)
_GB300 = Host(cluster="gb300-nvl72", label="GB300", devices=72, cards=72, gbit=800)

# Devices, each a word of its own: "GH200" is no H200 and "MI300A" no MI300X.
_DEVICES: tuple[tuple[str, Host], ...] = (
    (r"v100s?", _V100),
    (r"a[18]00", _A100),
    (r"h[18]00", _H100),
    (r"h200", _H200),
    (r"b200", _B200),
    (r"b300", _B300),
    (r"gb200", _GB200),
    (r"gb300", _GB300),
    (r"l40s", Host(cluster="l40s-server", label="L40S", cards=4)),
    (r"mi300x", Host(cluster="mi300x-node", label="MI300X")),
    (r"mi250x|frontier", Host(cluster="mi250x-node", label="MI250X", cards=4, gbit=200)),
)
# Hosts with a name of their own.
_HOSTS: tuple[tuple[str, Host], ...] = (
    (r"dgx-?1v?", _V100),
    (r"[dh]gx-2", replace(_V100, cluster="dgx-2", devices=16, cards=8)),
    (r"perlmutter", replace(_A100, cluster="perlmutter", devices=4, cards=4, fabric="slingshot", sold="Perlmutter")),
    (r"p3\.8xlarge", replace(_V100, devices=4, cards=1, gbit=10, fabric="tcp", sold="p3.8xlarge")),
    (r"p3(?:\.16xlarge)?", replace(_V100, cards=1, gbit=25, fabric="tcp", sold="p3.16xlarge")),
    (r"p3dn(?:\.24xlarge)?", replace(_V100, cards=1, gbit=100, fabric="efa-1", sold="p3dn")),
    (r"p4dn?(?:\.24xlarge)?", Host(cluster="aws-p4d", label="A100", cards=4, gbit=100, fabric="efa-1", sold="p4d")),
    (r"p4de(?:\.24xlarge)?", Host(cluster="aws-p4de", label="A100", cards=4, gbit=100, fabric="efa-1", sold="p4de")),
    (r"p5(?:\.48xlarge)?", Host(cluster="aws-p5", label="H100", cards=32, gbit=100, fabric="efa-2", sold="p5")),
    (r"p5e(?:\.48xlarge)?", Host(cluster="aws-p5en", label="H200", cards=32, gbit=100, fabric="efa-2", sold="p5e")),
    (r"p5en(?:\.48xlarge)?", Host(cluster="aws-p5en", label="H200", cards=16, gbit=200, fabric="efa-3", sold="p5en")),
    (r"p6-b200(?:\.48xlarge)?", Host(cluster="aws-p6-b200", label="B200", fabric="efa-4", sold="p6-b200")),
    (r"p6-b300(?:\.48xlarge)?", replace(_B300, cards=16, gbit=400, fabric="efa-4", sold="p6-b300")),
    (r"(?:u-)?p6e-gb200(?:x72)?(?:\.\w+)?", replace(_GB200, fabric="efa-4", sold="p6e-gb200")),
    (r"nd40rs_v2", replace(_V100, cards=1, gbit=100, fabric="infiniband", sold="ND40rs v2")),
    (r"nd96asr(?:_a100)?_v4|nd a100 v4", replace(_A100_SMALL, fabric="infiniband", sold="ND A100 v4")),
    (r"nd96amsr(?:_a100)?_v4|ndm a100 v4", replace(_A100, fabric="infiniband", sold="NDm A100 v4")),
    (r"nd96isr(?:f)?(?:_h100)?_v5|nd h100 v5", replace(_H100, fabric="infiniband", sold="ND H100 v5")),
    (r"nd96isr(?:f)?_h200_v5|nd h200 v5", replace(_H200, fabric="infiniband", sold="ND H200 v5")),
    (r"a2-highgpu-8g", replace(_A100_SMALL, cards=1, gbit=100, fabric="tcp", sold="a2-highgpu-8g")),
    (r"a2-ultragpu-8g", replace(_A100, cards=1, gbit=100, fabric="tcp", sold="a2-ultragpu-8g")),
    (r"a2-megagpu-16g",
     replace(_A100_SMALL, devices=16, cards=1, gbit=100, fabric="tcp", sold="a2-megagpu-16g", switched=True)),
    (r"a3[ -]high(?:gpu)?(?:-8g)?", replace(_H100, cards=4, gbit=200, fabric="tcp", sold="a3-high")),
    (r"a3[ -]mega(?:gpu)?(?:-8g)?", replace(_H100, gbit=200, fabric="tcp", sold="a3-mega")),
    (r"a3[ -]ultra(?:gpu)?(?:-8g)?", replace(_H200, fabric="roce", sold="a3-ultra")),
    (r"a4(?:-highgpu)?(?:-8g)?", replace(_B200, fabric="roce", sold="a4-high")),
)  # fmt: skip
# TPUs: the catalogue's pods. Where a chip has two devices the pod by devices is meant.
_TPUS = (
    (r"tpu[ -]?v?7x?|ironwood", "tpu-v7-core-pod", "TPU v7"),
    (r"(?:tpu[ -]?)?v6e|trillium", "tpu-v6e-pod", "TPU v6e"),
    (r"(?:tpu[ -]?)?v5p", "tpu-v5p-pod", "TPU v5p"),
    (r"(?:tpu[ -]?)?v5 ?(?:e|lite ?(?:pod)?)", "tpu-v5e-pod", "TPU v5e"),
    (r"tpu[ -]?v4", "tpu-v4-pod", "TPU v4"),
    (r"tpu[ -]?v3", "tpu-v3-pod", "TPU v3"),
)
# Links that a source measured without saying under which device.
_LINKS = (
    (r"pcie ?-?(?:gen)? ?5(?:\.0)?", Host(cluster="h100-pcie-server", label="PCIe", cards=4)),
    (r"pcie ?-?(?:gen)? ?[34](?:\.0)?", Host(cluster="a100-pcie-server", label="PCIe", cards=4)),
    (r"nvlink ?-?2", replace(_V100, label="NVLink 2")),
    (r"nvlink ?-?3", replace(_A100, label="NVLink 3")),
    (r"nvlink ?-?4", replace(_H100, label="NVLink 4")),
    (r"nvlink ?-?5", replace(_B200, label="NVLink 5")),
)
CARD_ALONE = Host(cluster="dgx-h100", label="network card", devices=1, cards=1)
_CARD_ALONE = r"rdma|infiniband|ib|roce|[ehnx]dr\d*|connectx-?\d"
# Cards of the same chip that differ in their links: other devices, of which the catalogue has none.
_VARIANTS = r"(?:h[12]00|a100|gh?200)[ -]?nvl(?!\d)|h100[ -]?cnx|a100x"
_LOOKS_LIKE_A_DEVICE = (
    r"rtx[ -]?(?:pro )?\w+(?: ada)?|gtx[ -]?\w+|mi\d+\w*|gaudi ?\d?|trainium ?\d?|[a-z]{1,3}\d{1,4}[a-z]?"
)


def _word(pattern: str) -> str:
    return rf"(?<![a-z0-9.])(?:{pattern})(?![a-z0-9]|\.\d*xlarge)"


def tpu_named(text: str) -> tuple[str, str] | None:
    """(cluster, class) of the TPU that a text names; None where it names none."""
    return next(((name, label) for pattern, name, label in _TPUS if re.search(_word(pattern), text)), None)


def host_named(text: str, *, where: str) -> Host:
    """The host that a text names, by its own name, by its devices, or by its links alone.

    Raises:
        UnsupportedError: It names none that is known, or several that differ.
    """
    if other := re.search(_word(_VARIANTS), text):
        raise UnsupportedError(f"unknown device {other[0].upper()}", where=where, fix=_known())
    hosts = list(dict.fromkeys(_found(text, _HOSTS)))
    devices = list(dict.fromkeys(_found(text, _DEVICES)))
    labels = {host.label for host in (*hosts, *devices)}
    if len(labels) > 1 or len(hosts) > 1:
        said = " and ".join(sorted({host.sold or host.label for host in hosts} | labels))
        raise UnsupportedError(f"the hardware {text!r} is {said} at once", where=where, fix="name one")
    if hosts:
        return hosts[0]
    if devices:
        return _variant(devices[0], text, where)
    if not _device_word(text):
        for host in _found(text, _LINKS):
            return host
        if re.search(_word(_CARD_ALONE), text):
            return CARD_ALONE
    raise UnsupportedError(f"unknown device {_device_word(text) or repr(text)}", where=where, fix=_known())


def _found(text: str, table: tuple[tuple[str, Host], ...]) -> Iterator[Host]:
    return (host for pattern, host in table if re.search(_word(pattern), text))


def _variant(host: Host, text: str, where: str) -> Host:
    """A device's memory and slot, where they are another host."""
    if host.label == "A100" and re.search(r"(?<!\d)40 ?gb?\b", text) and "pcie" not in text:
        return _A100_SMALL
    if not on_pcie(text):
        # The V100 behind switches are those of a DGX-2.
        return replace(host, devices=16, cards=8, switched=True) if host is _V100 and "nvswitch" in text else host
    if host.label in ("A100", "H100"):
        return replace(host, cluster=f"{host.label.lower()}-pcie-server", label=f"{host.label} PCIe", cards=4, gbit=400)
    if host.label == "V100":
        return replace(host, label="V100 PCIe")
    if host.label == "L40S":
        return host
    raise UnsupportedError(f"no {host.label} on PCIe alone is known", where=where, fix="name its scale-up link")


def on_pcie(text: str) -> bool:
    """Whether devices reach each other over PCIe alone: the slots of cards beside NVLink are no such word."""
    if re.search(r"(?:no|without) nvlink|nvlink (?:is )?(?:off|disabled)", text):
        return True
    joined = re.sub(r"nvlink (?:\w+ )?bridges?", " ", text)  # pairs of PCIe cards
    return "pcie" in text and not re.search(r"sxm|nvlink|nvswitch|[dh]gx|nvl\d", joined)


def _device_word(text: str) -> str | None:
    kept = re.sub(
        r"pcie ?-?(?:gen)? ?\d|nvlink ?\d|gen ?\d|[ehnx]dr\d*|connectx-?\d|cx-?\d|\d+ ?g\w*|\bx ?\d+\b", " ", text
    )
    found = re.search(_word(_LOOKS_LIKE_A_DEVICE), kept)
    return found[0].upper() if found else None


def _known() -> str:
    labels = dict.fromkeys(host.label for _, host in _DEVICES)
    return f"known are {', '.join([*labels, *(label for _, _, label in _TPUS)])}"
