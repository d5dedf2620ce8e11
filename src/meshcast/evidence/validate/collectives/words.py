"""What a source says of a system in words: numbers of nodes, racks and slices, network cards and their rates, algorithms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from meshcast.base import UnsupportedError

_NUMBERS = {
    "single": 1, "one": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "six": 6, "eight": 8, "sixteen": 16,
}  # fmt: skip
_NUMBER = r"(?<![\w.])(\d+|" + "|".join(_NUMBERS) + r")"
# Bits are told from bytes by the case of a letter: "400Gb" is a card, "80GB" a memory. A bare "G" is a card's where cards
# have such rates.
_RATE = r"(\d+(?:\.\d+)?) ?(?:(?:([GT])(?:b(?:it)?[Ee]?)?(?:ps|/s|/sec)?|([gt])(?:bps|bit/s|b/s|bit|be))(?![A-Za-z/]))"
_ANY_RATE = (
    r"(?:\d+(?:\.\d+)? ?[gt](?:bit/s|bps|b/s|bit|be|b)?[ -]*)?"  # the same in lower case, for what stands around it
)
_BARE = re.compile(r"\d+(?:\.\d+)? ?G$")
_BARE_RATES = (10, 25, 50, 100, 200, 400, 800, 1600, 3200)
_BYTES_PER_SECOND = re.compile(r"(\d+(?:\.\d+)?) ?(G|T)B(?:ps|/s)")
_CARD = r"(?:nic|hca|card|rail|adapter|interface|uplink|connectx|[qfehnx]dr\d*)s?\b"
# Names that end in a number, which is not that of the cards after it.
_NUMBERED = ((r"\b(?:connectx|cx)-?\d\b", "connectx"), (r"\b(slingshot|dgx|hgx|gen|nvlink|pcie|sxm)[ -]?\d+\b", r"\1"))
_BETWEEN = (
    r"(?:(?:infiniband|ib|ethernet|roce|rdma|efa|network|mellanox|nvidia|connectx|slingshot|gbe|[qfehnx]dr\d*)[ -]*)*"
)
_NAMED_RATES = {"qdr": 40, "fdr": 56, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}
_CONNECTX = {"5": 100, "6": 200, "7": 400, "8": 800}
_SLINGSHOT = {"10": 100, "11": 200}
MOST_CARDS = 72
FASTEST_CARD = 800  # Gbit/s: more than that is said of a whole host

Network = Literal["infiniband", "roce", "ethernet", "tcp", "efa", "slingshot", "dcn"]
_NETWORKS: tuple[tuple[Network, str], ...] = (
    ("dcn", r"\bdcn\b|data-?cent(?:er|re) network"),
    ("efa", r"\befa(?: ?-?v?\d)?\b|elastic fabric"),
    ("slingshot", r"slingshot"),
    ("tcp", r"\btcp(?:xo?)?\b|nccl_net ?= ?socket|over sockets|\bipoib\b"),
    ("infiniband", r"infiniband|\bib\b|\b[qfehnx]dr(?:100|200|400|800)?\b|\bquantum"),
    ("roce", r"\broce(?:v2)?\b|spectrum-?x"),
    ("ethernet", r"ethernet|\d ?gbe\b"),
)
# Words that come together and mean one network: which one.
_TOGETHER = {
    frozenset({"tcp", "ethernet"}): "tcp", frozenset({"roce", "ethernet"}): "roce", frozenset({"efa", "ethernet"}): "efa",
    frozenset({"slingshot", "ethernet"}): "slingshot", frozenset({"tcp", "infiniband"}): "tcp",
    frozenset({"dcn", "ethernet"}): "dcn",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidCards:
    """What a row says of a host's network cards; None where it says nothing.

    Attributes:
        count: How many.
        gbit: Gbit/s of each, or of all together where `whole`.
        whole: Whether the rate is that of all cards.
        each_device: Whether the count is of one device.
    """

    count: int | None = None
    gbit: float | None = None
    whole: bool = False
    each_device: bool = False


def plain(text: str) -> str:
    """Lower case, with "8xH100" and "A100SXM" as two words."""
    text = re.sub(r"(?<=\d) ?[x×] ?(?=[a-z])", " x ", text.lower())
    return re.sub(r"(?<=\d)(?=sxm|pcie)", " ", text)


def number_of(text: str, what: str) -> int | None:
    """The number before a word: of "two nodes" or "(8 nodes," 2 and 8.

    Raises:
        UnsupportedError: Several different ones are said.
    """
    found = {_number(said) for said in re.findall(rf"{_NUMBER}[ -]?(?:{what})\b", text.lower())}
    if len(found) > 1:
        raise UnsupportedError(f"{text!r} says {' and '.join(map(str, sorted(found)))} {what}")
    return found.pop() if found else None


def network_said(text: str) -> Network | None:
    """The kind of network; None where none is said.

    Raises:
        UnsupportedError: Several are.
    """
    found = [name for name, pattern in _NETWORKS if re.search(pattern, text.lower())]
    if len(found) < 2:
        return found[0] if found else None
    together = _TOGETHER.get(frozenset(found))
    if together is None:
        raise UnsupportedError(
            f"{text!r} says {' and '.join(found)}", fix="name the network that carried the collective"
        )
    return next(name for name, _ in _NETWORKS if name == together)


def efa_generation(text: str) -> int | None:
    """The generation in "EFAv3"; None where it is not said."""
    found = re.search(r"\befa ?-?v?(\d)\b", text.lower())
    return int(found[1]) if found else None


def cards_said(text: str) -> SaidCards:
    """Network cards: "8x400Gb", "4 NICs 400Gb", "single 200Gb NIC", "HDR", "ConnectX-7", "3.2 Tbps".

    Raises:
        UnsupportedError: Different numbers or rates are said.
    """
    lower = text.lower()
    counted = _counted_rates(text)
    bare = re.sub(rf"\d+ ?[x×] ?{_RATE}", " ", text)
    rates = [rate for _, rate in counted] + _rates(bare)
    rates = rates or _named_rates(lower)
    counts = [n for n, _ in counted] + _card_counts(text)
    if len(set(rates)) > 1:
        raise UnsupportedError(f"{text!r} has cards of {' and '.join(f'{rate:g}' for rate in rates)} Gbit/s")
    if len(set(counts)) > 1:
        raise UnsupportedError(f"{text!r} has {' and '.join(map(str, counts))} network cards")
    if counts and not 1 <= counts[0] <= MOST_CARDS:
        raise UnsupportedError(f"{text!r} has {counts[0]} network cards: hosts have 1 to {MOST_CARDS}")
    gbit = rates[0] if rates else None
    return SaidCards(
        count=counts[0] if counts else None,
        gbit=gbit,
        whole=gbit is not None and gbit > FASTEST_CARD and not counts,
        each_device=re.search(
            rf"{_CARD} ?(?:per|/|a|for each|for every) ?(?:gpu|device|accelerator)", re.sub(*_NUMBERED[0], lower)
        )
        is not None,
    )


def rates_in_bytes(text: str) -> list[float]:
    """bytes/s that are said as such: "900 GB/s"."""
    return [float(number) * {"G": 1e9, "T": 1e12}[unit] for number, unit in _BYTES_PER_SECOND.findall(text)]


def shape_said(text: str) -> tuple[int, ...] | None:
    """The shape of a slice: "4x4x8"."""
    found = re.search(r"(?<![\w.])(\d+(?: ?[x×] ?\d+){1,2})(?![\d.]|[ ]?[GTgt]b?)", text)
    return tuple(int(side) for side in re.findall(r"\d+", found[1])) if found else None


def _number(said: str) -> int:
    return _NUMBERS.get(said) or int(said)


def _gbit(number: str, upper: str, lower: str) -> float:
    return float(number) * (1000 if (upper or lower).upper() == "T" else 1)


def _counted_rates(text: str) -> list[tuple[int, float]]:
    found = re.finditer(rf"(?<![\w.])(\d+) ?[x×] ?{_RATE}", text)
    return [(int(match[1]), _gbit(match[2], match[3] or "", match[4] or "")) for match in found]


def _rates(text: str) -> list[float]:
    found: list[float] = []
    for match in re.finditer(rf"(?<![\w.]){_RATE}", text):
        rate = _gbit(match[1], match[2] or "", match[3] or "")
        if not _BARE.fullmatch(match[0]) or rate in _BARE_RATES:
            found.append(rate)
    return found


def _named_rates(lower: str) -> list[float]:
    found = [
        float(lanes or _NAMED_RATES[name]) for name, lanes in re.findall(r"\b([qfehnx]dr)(100|200|400|800)?\b", lower)
    ]  # HDR100 and NDR200 are half the lanes
    found += [float(_CONNECTX[n]) for n in re.findall(r"\b(?:connectx|cx)-?([5-8])\b", lower)]
    return found + [float(_SLINGSHOT[n]) for n in re.findall(r"slingshot[ -]?(1[01])\b", lower)]


def _card_counts(text: str) -> list[int]:
    left = plain(text)
    for pattern, name in _NUMBERED:
        left = re.sub(pattern, name, left)
    found = re.finditer(rf"{_NUMBER} ?x?[ -]+{_ANY_RATE}{_BETWEEN}{_ANY_RATE}{_CARD}", left)
    return [_number(match[1]) for match in found]
