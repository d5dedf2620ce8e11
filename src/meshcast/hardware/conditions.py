"""The state that hardware is in: slow devices, degraded or failed links, and what others send over the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
