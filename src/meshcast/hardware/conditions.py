"""The state that hardware is in: slow devices, degraded or failed links, and what others send over the network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshcast.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCondition:
    """The links of one device (of all, if `device` is None) at a level of the network, at a share of their rate.

    Attributes:
        level: Name of the network level.
        device: Whose links, by its number; None for everyone's.
        share: What is left of their rate: 1 is healthy, 0 is failed.
        links: How many of the device's links are in this state; None for all of them.
    """

    level: str
    device: int | None = None
    share: float
    links: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What breaks the symmetry of equal hardware; nothing, by default.

    Attributes:
        speed: Compute speed of single devices as a share of the healthy one, by device number.
        links: Links that are not at their full rate.
        background: Share of a level's rate that other jobs take, by the level's name.
    """

    speed: Mapping[int, float] = field(default_factory=dict)
    links: tuple[LinkCondition, ...] = ()
    background: Mapping[str, float] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether nothing is out of the ordinary."""
        return not (self.speed or self.links or self.background)


HEALTHY = Conditions()


def parse_conditions(
    *, slow: Sequence[str] = (), links: Sequence[str] = (), background: Sequence[str] = ()
) -> Conditions:
    """Conditions from the command line's texts.

    Args:
        slow: `DEVICE=SHARE` or `FIRST-LAST=SHARE`: compute speed as a share of the healthy one.
        links: `LEVEL=SHARE`, `LEVEL:DEVICE=SHARE` or `LEVEL:DEVICExLINKS=SHARE`; a share of 0 is a failed link.
        background: `LEVEL=SHARE`: what others take of the level's rate.
    """
    speed: dict[int, float] = {}
    for text in slow:
        name, share = _share(text, "--slow", "DEVICE=SHARE, e.g. 17=0.8, or 8-15=0.9", healthy_is_most=False)
        for device in _devices(name):
            if device in speed:
                raise UsageError(f"device {device} is given twice", where="--slow", fix="give each device once")
            speed[device] = share
    taken: dict[str, float] = {}
    for text in background:
        level, share = _share(text, "--background", "LEVEL=SHARE, e.g. infiniband=0.3")
        if share == 1.0:
            raise UsageError(f"{text!r} leaves nothing of {level}", where="--background", fix="give a share below 1")
        if level in taken:
            raise UsageError(f"level {level} is given twice", where="--background", fix="give each level once")
        taken[level] = share
    return Conditions(speed=speed, links=tuple(_link(text) for text in links), background=taken)


def _share(text: str, flag: str, form: str, *, healthy_is_most: bool = True) -> tuple[str, float]:
    """NAME and SHARE of `NAME=SHARE`; a speed must be above 0 and may be above 1, other shares lie from 0 to 1."""
    name, equals, value = text.rpartition("=")
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not equals or not name or not math.isfinite(share):
        raise UsageError(f"{text!r} is not {form.partition(',')[0]}", where=flag, fix=f"write {flag} {form}")
    if not (0.0 <= share <= 1.0 if healthy_is_most else share > 0.0):
        bounds = "from 0 to 1" if healthy_is_most else "above 0"
        raise UsageError(f"a share of {share:g} is out of range: {bounds}", where=flag, fix=f"write {flag} {form}")
    return name, share


def _devices(text: str) -> range:
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
        raise UsageError(f"{text!r} is not a device number or FIRST-LAST", where="--slow", fix="write --slow 17=0.8")
    return range(int(first), int(last if dash else first) + 1)


def _link(text: str) -> LinkCondition:
    form = "LEVEL[:DEVICE[xLINKS]]=SHARE, e.g. infiniband:17=0.5"
    name, share = _share(text, "--link", form)
    level, colon, place = name.partition(":")
    if not colon:
        return LinkCondition(level=level, share=share)
    device, times, count = place.partition("x")
    if not level or not device.isdecimal() or (times and (not count.isdecimal() or int(count) < 1)):
        raise UsageError(f"{text!r} is not {form.partition(',')[0]}", where="--link", fix=f"write --link {form}")
    return LinkCondition(level=level, device=int(device), share=share, links=int(count) if times else None)
