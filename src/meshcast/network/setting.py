"""`Setting`: the cluster, its state and the places of ranks that collectives are timed in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshcast.hardware import HEALTHY, Cluster, Conditions
from meshcast.network.rank_placement import RankPlacement
from meshcast.network.spread import Ints
from meshcast.workload import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeJob:
    """The devices of a job, and the hardware that they are on."""

    cluster: Cluster
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where collectives run, and what is settled about how.

    Attributes:
        cluster: The hardware, with the levels that `devices` span.
        devices: Devices of the fabric: as many as ranks, or more where ranks or other jobs lie further out.
        conditions: The state of its links.
        placement: Which device runs which rank; the one of its own number where there is none.
        graph: A user's own graph, in a file, instead of the cluster's.
        beside: Collectives of other jobs, which never end; their groups are devices, not ranks.
        algorithm: Overrules the library's choice.
        protocol: Overrules the library's choice.
        part_of: The job that these devices are a part of; None where they are all of it.
    """

    cluster: Cluster
    devices: int
    conditions: Conditions = HEALTHY
    placement: RankPlacement | None = None
    graph: Path | None = None
    beside: tuple[Collective, ...] = ()
    algorithm: str | None = None
    protocol: str | None = None
    part_of: WholeJob | None = None

    def rows(self, collective: Collective) -> list[Ints]:
        """The devices of every group of a collective."""
        rows = collective.group.rows()
        return rows if self.placement is None else [self.placement.of(ranks) for ranks in rows]
