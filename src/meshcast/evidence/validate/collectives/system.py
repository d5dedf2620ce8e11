"""`System`: what a measurement ran on, as it is predicted."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.base import Group
from meshcast.hardware import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The hardware and software that a collective was measured on.

    Attributes:
        cluster: With the levels that its devices span.
        devices: Members of a group.
        group: Which devices they are, and how many groups run at once.
        hardware_class: What errors are told by.
        algorithm: Where the words name one that libraries do not take by themselves.
        protocol: The same of protocols.
        assumed: What no word said and the catalogue's usual system was taken for.
    """

    cluster: Cluster
    devices: int
    group: Group
    hardware_class: str
    algorithm: str | None = None
    protocol: str | None = None
    assumed: tuple[str, ...] = ()
