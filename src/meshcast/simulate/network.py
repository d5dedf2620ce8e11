"""`NetworkModel`: what a run asks a network, and the closed form's answer.

A run needs two things of a network: how long a collective takes alone, and at what share of that speed each of several
that are under way at once advances. In closed form, a collective that lasts `t` seconds and sends `b_l` bytes over a level
of rate `B_l` uses the share `u_l = b_l / (B_l t)` of it. Where the shares of a level add up to more than 1, all that use it
advance at `1 / sum`; of several levels the slowest counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from meshcast.hardware import Cluster
from meshcast.lower.kernel import CostKey, Kernel
from meshcast.network.loads import level_bytes

CommunicationTime = Callable[[Kernel], float]


@runtime_checkable
class NetworkModel(Protocol):
    """What a run asks a network; kernels are collectives."""

    def seconds(self, kernel: Kernel) -> float:
        """Seconds of a collective that has the network to itself."""

    def shares(self, active: Sequence[Kernel]) -> Sequence[float]:
        """The speed of each of several collectives under way at once, as a share of its speed alone; at most 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncontended:
    """A network on which collectives do not notice each other."""

    time: CommunicationTime

    def seconds(self, kernel: Kernel) -> float:
        """What the function says."""
        return self.time(kernel)

    def shares(self, active: Sequence[Kernel]) -> Sequence[float]:
        """Full speed for all."""
        return (1.0,) * len(active)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLevels:
    """A network whose levels are shared in proportion; `time` gives the seconds of a collective alone."""

    time: CommunicationTime
    cluster: Cluster
    uses: dict[CostKey, Mapping[str, float]] = field(default_factory=dict, repr=False)  # by level, kept

    def seconds(self, kernel: Kernel) -> float:
        """What the function says."""
        return self.time(kernel)

    def shares(self, active: Sequence[Kernel]) -> Sequence[float]:
        """`1 / sum of uses` of the most used level, where that is more than 1."""
        if len(active) < 2:
            return (1.0,) * len(active)
        used = [self._use(kernel) for kernel in active]
        total: defaultdict[str, float] = defaultdict(float)
        for use in used:
            for level, share in use.items():
                total[level] += share
        return tuple(min((1 / total[level] for level in use if total[level] > 1), default=1.0) for use in used)

    def _use(self, kernel: Kernel) -> Mapping[str, float]:
        found = self.uses.get(kernel.cost_key)
        if found is None:
            assert kernel.collective is not None
            seconds = self.seconds(kernel)
            found = {
                level.name: min(1.0, sent / (level.bandwidth * seconds))
                for level, sent in level_bytes(kernel.collective, self.cluster)
                if seconds > 0
            }
            self.uses[kernel.cost_key] = found
        return found


def as_network(network: NetworkModel | CommunicationTime) -> NetworkModel:
    """A network model; of a function of times, one without contention."""
    return network if isinstance(network, NetworkModel) else Uncontended(time=network)
