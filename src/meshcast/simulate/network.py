"""What a run asks a network about its collective kernels: seconds alone, and speeds of those under way at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from meshcast.base import by_point, larger
from meshcast.lower import CostKey, Kernel
from meshcast.network import NetworkModel
from meshcast.workload import Collective

CommunicationTime = Callable[[Kernel], float]


@runtime_checkable
class KernelNetwork(Protocol):
    """The questions that a run asks a network; kernels are collectives."""

    def seconds(self, kernel: Kernel) -> float:
        """Seconds of a collective that has the network to itself."""

    def shares(self, active: Sequence[Kernel]) -> Sequence[float]:
        """The speed of each of several collectives under way at once, as a share of its speed alone; at most 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncontended:
    """A network on which collectives do not notice each other."""

    time: CommunicationTime

    def seconds(self, kernel: Kernel) -> float:
        """The seconds that the function gives."""
        return self.time(kernel)

    def shares(self, active: Sequence[Kernel]) -> Sequence[float]:
        """Full speed for all."""
        return (1.0,) * len(active)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnNetwork:
    """A network model's answers, perhaps all longer or shorter: `seconds * factor + start_s`."""

    model: NetworkModel
    factor: float = 1.0
    start_s: float = 0.0
    _known: dict[CostKey, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _shares: dict[tuple[CostKey, ...], Sequence[float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def seconds(self, kernel: Kernel) -> float:
        """The model's time, changed; models that agree but for rounding must not put a step in different orders."""
        found = self._known.get(kernel.cost_key)
        if found is None:
            seconds = larger(0.0, self.model.seconds(collective_of_kernel(kernel)) * self.factor + self.start_s)
            found = self._known[kernel.cost_key] = by_point(_rounded, seconds)
        return found

    def shares(self, active: Sequence[Kernel]) -> Sequence[float]:
        """The model's shares."""
        key = tuple([kernel.cost_key for kernel in active])
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = self.model.shares([collective_of_kernel(kernel) for kernel in active])
        return found


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.12g}")


def collective_of_kernel(kernel: Kernel) -> Collective:
    """The collective that a kernel is known to be."""
    assert kernel.collective is not None
    return kernel.collective


def as_network(network: KernelNetwork | CommunicationTime) -> KernelNetwork:
    """A network as a run asks it; a function of times becomes a network without contention."""
    return network if isinstance(network, KernelNetwork) else Uncontended(time=network)
