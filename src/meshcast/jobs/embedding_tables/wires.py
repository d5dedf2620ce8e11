"""Seconds of collectives by their size, on the network models that programs are timed on, read off a curve once it is drawn.

A search asks for thousands of sizes; a collective's time is drawn at every power of two once, and read in between on
straight lines over the size, as its wire's part is. An uneven all-to-all lasts as long as the rank with most to send or
receive takes for an even one of its own size: all of its links are the busiest ones, and everybody waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.base import Group, Mesh
from meshcast.hardware import HEALTHY, Cluster, Conditions
from meshcast.jobs.embedding_tables.sharding import TrainerRanks
from meshcast.network import Arrangement, arranged, collective_of, network_model

Floats = npt.NDArray[np.float64]
SIZES = 2.0 ** np.arange(6, 37)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Seconds of one kind of collective by its bytes; nothing sent takes no time."""

    seconds_at: Floats

    def __call__(self, size: Floats | float) -> Floats:
        """Seconds of each size."""
        asked = np.asarray(size, dtype=np.float64)
        if not asked.any():
            return asked
        return np.where(asked > 0, np.interp(asked, SIZES, self.seconds_at), 0.0)


NOTHING = Curve(seconds_at=np.zeros_like(SIZES))


@dataclass(frozen=True)
class TableWires:
    """The collectives of a sharded model on a cluster: over all ranks, inside nodes, and across them."""

    cluster: Cluster
    ranks: TrainerRanks
    network: str = "alpha-beta"
    conditions: Conditions = HEALTHY

    @cached_property
    def mesh(self) -> Mesh:
        """Ranks by node and place in it; flat where the last node is not full."""
        n, g = self.ranks.devices, self.ranks.node
        return Mesh.of({"node": n // g, "place": g}) if n % g == 0 else Mesh.of({"node": n})

    @cached_property
    def all_to_all(self) -> Curve:
        """Over all ranks."""
        return self._curve("all_to_all", self.mesh.group(tuple(self.mesh.sizes)))

    @cached_property
    def reduce_scatter(self) -> Curve:
        """Over all ranks."""
        return self._curve("reduce_scatter", self.mesh.group(tuple(self.mesh.sizes)))

    @cached_property
    def all_reduce(self) -> Curve:
        """Over all ranks."""
        return self._curve("all_reduce", self.mesh.group(tuple(self.mesh.sizes)))

    @cached_property
    def in_node(self) -> Curve:
        """A reduce-scatter among the ranks of every node."""
        return self._curve("reduce_scatter", self.mesh.group(("place",))) if self._nodes else NOTHING

    @cached_property
    def across(self) -> Curve:
        """An all-to-all among the ranks that have the same place in their nodes."""
        return self._curve("all_to_all", self.mesh.group(("node",))) if self._nodes else NOTHING

    @property
    def _nodes(self) -> bool:
        return len(self.mesh.sizes) == 2 and self.ranks.nodes > 1

    def _curve(self, kind: str, group: Group) -> Curve:
        if group.size < 2:
            return NOTHING
        setting, _ = arranged(
            Arrangement(network=self.network, conditions=self.conditions), self.cluster, self.ranks.devices, {}
        )
        model = network_model(self.network, setting)
        return Curve(seconds_at=np.array([model.seconds(collective_of(kind, int(size), group)) for size in SIZES]))
