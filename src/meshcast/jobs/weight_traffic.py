"""`WeightTraffic`: what it takes to gather weights and to sum gradients up over the axes of a plan, before there is a program."""

from __future__ import annotations

from meshcast.base import Mesh
from meshcast.hardware import Cluster
from meshcast.network import NetworkModel, arranged, collective_of, network_model
from meshcast.options import Options
from meshcast.zoo import Plan

MODELLED = "alpha-beta"


class WeightTraffic:
    """Seconds of collectives over the axes of plans, as the network model has them."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster, self._network = cluster, options.network
        # Where collectives of a group may be under way at once, or another model times them, nothing is claimed.
        arrangement = options.network.arrangement
        self._claimed = (
            options.network.model == MODELLED
            and options.run.channels in (0, 1)
            and arrangement.placement is None
            and not options.lowering.rewrites.any
            and len(cluster.levels) > 0
        )
        self._models: dict[int, NetworkModel] = {}
        self._known: dict[tuple[str, str, str, int], float] = {}

    def seconds(self, plan: Plan, kind: str, axis: str, size: float) -> float:
        """Seconds of a collective of so many bytes over an axis of a plan's mesh; 0 where nothing is claimed."""
        sizes = plan.mesh
        if not self._claimed or sizes.get(axis, 1) == 1 or size < 1:
            return 0.0
        mesh = Mesh.of(sizes)
        key = str(mesh), kind, axis, int(size)
        if key not in self._known:
            model = self._models.get(mesh.size)
            if model is None:
                setting, _ = arranged(self._network.arrangement, self._cluster.for_devices(mesh.size), mesh.size, {})
                model = self._models[mesh.size] = network_model(MODELLED, setting)
            self._known[key] = model.seconds(collective_of(kind, int(size), mesh.group((axis,))))
        return self._known[key]

    def in_network(self, plan: Plan, kind: str, axis: str, size: float) -> bool:
        """Whether switches carry out a part of such a collective."""
        if not self.seconds(plan, kind, axis, size):
            return False
        mesh = Mesh.of(plan.mesh)
        return self._models[mesh.size].plan(collective_of(kind, int(size), mesh.group((axis,)))).in_network
