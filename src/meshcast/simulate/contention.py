"""How much compute and communication slow each other down while both run on one device.

A collective that a GPU runs as a kernel holds `c` of its `C` cores (one per channel of the library), and every byte sent
makes the memory read and write some bytes more. Beside it a compute kernel of time `t`, of which its arithmetic needs
`a`, its memory traffic `m`, takes

    t' = t + max(a / (1 - c / C), m) - max(a, m)

as fewer cores compute, while those that are left can still draw all of the memory's bandwidth. Then the memory is shared:
the kernel uses it for `m / t'` of the time, collectives for `b / (B t_c)`, their bytes over its bandwidth and their time. Where
the sum `u` is more than 1, all advance at `1 / u`.

Bytes of memory traffic per byte sent, by what a ring does with them: a gathered byte is read and sent, and the one that
came in is written: 2. A reduced byte is written on arrival, read again beside the local operand, and sent: 3. An all-reduce
does one after the other: 2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meshcast.base import larger, smaller
from meshcast.estimate import KernelEstimate
from meshcast.hardware import Device
from meshcast.lower import CostKey, Kernel
from meshcast.simulate.network import KernelNetwork

# An assumption, from no measurement: however many collectives are under way, a kernel beside them keeps half of the cores. It
# bounds what several channels take together; one collective of any device in the catalogue takes less.
MOST_CORES = 0.5
MOVED_PER_BYTE = {"reduce_scatter": 3.0, "all_reduce": 2.5, "collective_reduce": 2.5}
COPIED_PER_BYTE = 2.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What a collective takes of a device while it runs alone: shares of its cores and of its memory's bandwidth."""

    cores: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """The cores and bandwidth that collectives take of a device.

    Attributes:
        device: Whose cores and memory they take.
        in_network: Whether switches carry out a part of a collective: it then needs fewer cores.
    """

    device: Device
    in_network: Callable[[Kernel], bool]
    _known: dict[tuple[CostKey, float], Taken] = field(default_factory=dict, init=False, repr=False, compare=False)

    def taken(self, kernel: Kernel, seconds: float) -> Taken:
        """The shares that a collective takes which lasts so long alone."""
        key = (kernel.cost_key, seconds)
        found = self._known.get(key)
        if found is None:
            collective = kernel.collective
            assert collective is not None
            costs = self.device.communication
            cores = 0
            if costs is not None:
                cores = costs.in_network_cores if self.in_network(kernel) else costs.cores
            moved = collective.sent_bytes * MOVED_PER_BYTE.get(collective.kind, COPIED_PER_BYTE)
            memory = moved / (self.device.memory_bandwidth * seconds) if seconds > 0 else 0.0
            found = self._known[key] = Taken(smaller(cores / self.device.cores, MOST_CORES), smaller(1.0, memory))
        return found


@dataclass(frozen=True, slots=True)
class Together:
    """Collectives under way at once: their speeds as shares of those alone, and the shares of the device that they take."""

    shares: list[float]
    memory: float
    cores: float
    taking: bool  # whether they take anything of a device


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedShares:
    """The speeds of what is under way at once, as shares of the speed alone."""

    network: KernelNetwork
    contention: Contention | None = None

    def of(
        self, compute: KernelEstimate | None, active: Sequence[Kernel], seconds: Sequence[float]
    ) -> tuple[float, list[float]]:
        """The speed of a compute kernel (1 where there is none) and those of collectives beside it."""
        return self.beside(compute, self.together(active, seconds))

    def together(self, active: Sequence[Kernel], seconds: Sequence[float]) -> Together:
        """What collectives leave each other, and take of the device, whatever is computed beside them."""
        shares = list(self.network.shares(active)) if len(active) > 1 else [1.0] * len(active)
        contention = self.contention
        if contention is None or not active:
            return Together(shares, 0.0, 0.0, False)
        memory = cores = 0.0
        for kernel, lasting, share in zip(active, seconds, shares, strict=True):
            taken = contention.taken(kernel, lasting)
            memory += taken.memory * share
            cores += taken.cores
        return Together(shares, memory, cores, True)

    @staticmethod
    def beside(compute: KernelEstimate | None, sending: Together) -> tuple[float, list[float]]:
        """The speed of a compute kernel (1 where there is none) and those of collectives beside it."""
        shares, memory, cores = sending.shares, sending.memory, sending.cores
        if not sending.taking:
            return 1.0, shares
        time = compute.time if compute is not None else 0.0
        if compute is None or not time:
            speed = 1 / larger(1.0, memory)
            return 1.0, [share * speed for share in shares]
        busy, traffic = larger(compute.compute_time, compute.core_time), compute.memory_time
        slower = time + larger(busy / (1 - smaller(MOST_CORES, cores)), traffic) - larger(busy, traffic)
        memory += smaller(1.0, traffic / slower)
        speed = 1 / larger(1.0, memory)
        return time / slower * speed, [share * speed for share in shares]
