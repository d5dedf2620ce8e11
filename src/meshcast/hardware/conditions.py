"""The state that hardware is in: slow devices, degraded or failed links, and what others send over the network."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from meshcast.base import UsageError, nearest, parse_ranges
from meshcast.hardware.cluster import Cluster, NetworkLevel

LEAST_SPEED = 1e-3  # of a device that still takes part


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
        kinds: Devices of another kind than the cluster's, by device number: names of the catalogue.
    """

    speed: Mapping[int, float] = field(default_factory=dict)
    links: tuple[LinkCondition, ...] = ()
    background: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[int, str] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether nothing is out of the ordinary."""
        return not (self.speed or self.links or self.background or self.kinds)


HEALTHY = Conditions()


def parse_conditions(
    *, slow: Sequence[str] = (), links: Sequence[str] = (), background: Sequence[str] = ()
) -> Conditions:
    """Conditions from the command line's texts.

    Args:
        slow: `DEVICE=SHARE`, `FIRST-LAST=SHARE` or several of both with commas between them: compute speed as a share of the
            healthy one; or instead of the share the name of another kind of device.
        links: `LEVEL=SHARE`, `LEVEL:DEVICE=SHARE` or `LEVEL:DEVICExLINKS=SHARE`; a share of 0 is a failed link.
        background: `LEVEL=SHARE`: what others take of the level's rate.
    """
    speed: dict[int, float] = {}
    kinds: dict[int, str] = {}
    for text in slow:
        place, equals, value = text.partition("=")
        named = bool(equals) and value[:1].isalpha() and value.lower() not in ("nan", "inf")
        share = 1.0 if named else _share(text, "--slow", "DEVICE=SHARE, e.g. 17=0.8, or 8-15=a100-sxm-80gb")[1]
        for device in parse_ranges(place, where="--slow", what="device", example="17=0.8, or 8-15=0.8"):
            if device in speed or device in kinds:
                raise UsageError(f"device {device} is given twice", where="--slow", fix="give each device once")
            if named:
                kinds[device] = value
            else:
                speed[device] = share
    taken: dict[str, float] = {}
    for text in background:
        level, share = _share(text, "--background", "LEVEL=SHARE, e.g. infiniband=0.3")
        if level in taken:
            raise UsageError(f"level {level} is given twice", where="--background", fix="give each level once")
        taken[level] = share
    return Conditions(speed=speed, links=tuple(_link(text) for text in links), background=taken, kinds=kinds)


def _share(text: str, flag: str, form: str) -> tuple[str, float]:
    """NAME and SHARE of `NAME=SHARE`; `check_conditions` knows which shares there are."""
    name, equals, value = text.rpartition("=")
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not equals or not name or not math.isfinite(share):
        raise UsageError(f"{text!r} is not {form.partition(',')[0]}", where=flag, fix=f"write {flag} {form}")
    return name, share


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


def check_conditions(conditions: Conditions, cluster: Cluster, devices: int) -> None:
    """Refuses conditions that name no part of `devices` devices of a cluster.

    Raises:
        UsageError: An unknown level, a device that is not there, or a share that is none.
    """
    levels = {level.name: level for level in cluster.levels}
    for condition in conditions.links:
        what = f"condition on the links of level {condition.level!r}"
        if condition.level not in levels:
            raise UsageError(f"{what}: no such level", where=cluster.name, fix=nearest(condition.level, levels))
        if condition.device is not None:
            _check_device(condition.device, devices, what)
        _check_share(condition.share, what, 0.0, 1.0)
        if condition.links is not None and not 0 < condition.links <= levels[condition.level].links:
            raise UsageError(
                f"{what}: {condition.links} links, but a device has {levels[condition.level].links} there",
                fix="name fewer links, or none for all of them",
            )
    for name, share in conditions.background.items():
        if name not in levels:
            raise UsageError(
                f"background traffic on level {name!r}: no such level", where=cluster.name, fix=nearest(name, levels)
            )
        _check_share(share, f"background traffic on level {name!r}", 0.0, 1.0, below=True)
    for device in conditions.kinds:
        _check_device(device, devices, "kind of a device")
    for device, speed in conditions.speed.items():
        _check_device(device, devices, "speed of a device")
        if not LEAST_SPEED <= speed <= 1 / LEAST_SPEED:
            raise UsageError(
                f"speed of device {device}: {speed:g} is not from {LEAST_SPEED:g} to {1 / LEAST_SPEED:g}",
                fix="1 is a healthy device's speed",
            )


def _check_device(device: int, devices: int, what: str) -> None:
    if not 0 <= device < devices:
        raise UsageError(f"{what}: no device {device} among {devices}", fix=f"devices are 0 to {devices - 1}")


def _check_share(share: float, what: str, least: float, most: float, *, below: bool = False) -> None:
    if not least <= share <= most or (below and share == most):
        span = f"from {least:g} to {'below ' if below else ''}{most:g}"
        raise UsageError(f"{what}: a share of {share:g} of the rate", fix=f"give a share {span}")


def rate_left(condition: LinkCondition, links: int) -> float:
    """What is left of the rate of a device with so many links, of which a condition may concern a few."""
    concerned = links if condition.links is None else min(condition.links, links)
    return 1.0 - concerned / links * (1.0 - condition.share)


def degraded(level: NetworkLevel, ids: Collection[int], conditions: Conditions) -> float:
    """The share of a level's rate that a collective among the devices `ids` is left with: its slowest member's.

    All members of a collective move equal amounts, so the slowest link bounds them; background traffic takes its part
    of every link. 0 says that a member's links have failed.
    """
    members = set(ids)
    left: dict[int | None, float] = {}
    for condition in conditions.links:
        if condition.level == level.name and (condition.device is None or condition.device in members):
            left[condition.device] = left.get(condition.device, 1.0) * rate_left(condition, level.links)
    everyone = left.pop(None, 1.0)
    return everyone * min(left.values(), default=1.0) * (1.0 - conditions.background.get(level.name, 0.0))
