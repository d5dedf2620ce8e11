"""The network between hosts as a source's words have it: a level of the catalogue with these cards and this software.

A device's share of its host's cards is `min(N R / d, max(R, N R / h))`: N cards of rate R shared by the d devices that take
part, of the h that the host has. A device alone in its host has the cards next to it, not all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshcast.base import UnsupportedError
from meshcast.evidence.validate.collectives.hosts import Host
from meshcast.evidence.validate.collectives.words import SaidCards, cards_said, efa_generation, network_said
from meshcast.hardware import NetworkLevel, with_software

_FIRST_EFA = ("A100", "V100")  # cards of their time; later devices have the second generation or a newer one


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """A network level, and what was taken for granted of it because no word says so."""

    level: NetworkLevel
    assumed: tuple[str, ...] = ()


def network_between(level: NetworkLevel, host: Host, text: str, *, inside: int) -> Between:
    """The level between hosts of which `inside` devices take part.

    Args:
        level: The network of the catalogue's cluster.
        host: The host, with the cards it usually has.
        text: What the source says.
        inside: Devices of one host that take part.

    Raises:
        UnsupportedError: The words contradict each other, or the host.
    """
    kind = network_said(text)
    if kind == "dcn":
        raise UnsupportedError(f"{text!r}: a DCN joins slices of TPUs", fix="name the network between the hosts")
    said = cards_said(text)
    assumed: list[str] = []
    name: str
    if kind is None:
        name = host.fabric or level.link.name
        assumed += [] if host.sold or host.fabric else [f"network {name}"]
    elif kind == "efa":
        generation = efa_generation(text)
        first = "efa-1" if host.label in _FIRST_EFA else "efa-2"
        stated = host.fabric if host.fabric and host.fabric.startswith("efa") else first
        name = f"efa-{generation}" if generation else stated
    elif kind == "ethernet":
        name = host.fabric if host.fabric in ("tcp", "roce") else "roce"
        assumed += [] if name == host.fabric else ["Ethernet with RDMA"]
    else:
        name = kind
    changed = with_software(level, name)
    count, gbit = _checked(host, said) if host.sold else _cards(host, said, tcp=name == "tcp", inside=inside)
    if host.sold == "" and said.gbit is None:
        assumed.append(f"{gbit:g} Gbit/s a card")
    if host.sold == "" and said.count is None and not said.whole:
        assumed.append(f"{count} network cards a host" if count > 1 else "one network card a host")
    rate = gbit * 1e9 / 8
    share = min(count * rate / inside, max(rate, count * rate / max(inside, host.devices)))
    return Between(level=replace(changed, links=1, link_bandwidth=share), assumed=tuple(assumed))


def _cards(host: Host, said: SaidCards, *, tcp: bool, inside: int) -> tuple[int, float]:
    """(cards of a host, Gbit/s of each)."""
    gbit = said.gbit or host.gbit
    if said.whole:
        return host.cards, gbit / host.cards
    if said.count is None:
        # Sockets go through the host's own interface; cards for the devices are said as RDMA.
        return (1 if tcp and said.gbit else host.cards), gbit
    return said.count * (max(inside, host.devices) if said.each_device else 1), gbit


def _checked(host: Host, said: SaidCards) -> tuple[int, float]:
    """The cards of an instance, of which words may only repeat what is known: a card's rate, a device's share or all of it."""
    whole = host.cards * host.gbit
    possible: Sequence[tuple[int | None, float]] = [
        (None, host.gbit), (None, whole), (None, whole / host.devices), (1, whole), (host.cards, host.gbit),
        (host.devices, whole / host.devices),
    ]  # fmt: skip
    counts = {host.cards, host.devices, 1 if host.cards == 1 else host.cards}
    wrong_count = said.gbit is None and said.count is not None and said.count not in counts
    if wrong_count or (said.gbit is not None and (said.count, said.gbit) not in possible):
        stated = f"{said.count or ''} {'cards of ' if said.count else ''}{said.gbit or '?':g} Gbit/s".strip()
        raise UnsupportedError(
            f"{stated} contradict the instance {host.sold}, which has {host.cards} of {host.gbit:g} Gbit/s"
        )
    return host.cards, host.gbit
