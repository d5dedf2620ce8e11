"""A TPU as the models see it: a device's data sheet with the calibrated costs applied, and what a kernel takes on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from meshcast.errors import UnsupportedError
from meshcast.estimate.explanation import Term
from meshcast.estimate.tpu.parameters import Parameters
from meshcast.hardware import Device
from meshcast.hardware.device import TensorCores
from meshcast.lower.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of a kernel by where they lie: in memory, or kept in VMEM between kernels."""

    hbm: float
    vmem: float

    @property
    def all(self) -> float:
        """Every byte passes through registers, wherever it comes from."""
        return self.hbm + self.vmem


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one kernel takes: seconds in all, by the arrays and vector units, and by the memory."""

    time: float
    compute: float = 0.0
    memory: float = 0.0
    terms: tuple[Term, ...] = ()  # of the formula, where the machine is asked to explain


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A device with the calibrated parameters; seconds, bytes, hertz. All TensorCores of it work on one kernel."""

    device: Device
    parameters: Parameters
    explaining: bool = False

    @cached_property
    def cores(self) -> TensorCores:
        """Arrays, lanes and VMEM.

        Raises:
            UnsupportedError: The device's file does not say.
        """
        if self.device.tensor_cores is None:
            raise UnsupportedError(
                f"{self.device.name} says nothing about its systolic arrays",
                where=self.device.name,
                fix="add a [tensor_cores] table to its file (docs/hardware.md), or use --fidelity roofline",
            )
        return self.device.tensor_cores

    @cached_property
    def vector_rate(self) -> float:
        """Vectors (registers of 32-bit elements) per second, one per core and clock."""
        return self.device.cores * self.device.clock_hz

    @cached_property
    def vector_elements(self) -> int:
        """32-bit elements of one vector."""
        return self.cores.sublanes * self.cores.lanes

    @cached_property
    def fixed(self) -> float:
        """Seconds of a kernel that does nothing."""
        return self.parameters.kernel_cycles / self.device.clock_hz

    @cached_property
    def kept_bytes(self) -> float:
        """What stays on chip between kernels: VMEM, or the memory beside it that its file calls cache (v4's CMEM)."""
        return self.parameters.vmem_share * max(self.cores.vmem_bytes, self.device.cache_bytes)

    def traffic(self, kernel: Kernel) -> Traffic:
        """Where a kernel's bytes lie: what was touched, or will be read, within VMEM's reach never leaves it.

        An age is what is moved in between, the value's own bytes included (`lower.recency`). Nothing known: everything
        was just touched. A compiler that has placed every value is believed.
        """
        moved = kernel.read_bytes + kernel.written_bytes
        if kernel.on_chip_bytes is not None:
            return Traffic(hbm=moved, vmem=kernel.on_chip_bytes)
        if kernel.recency is None:
            return Traffic(hbm=0.0, vmem=moved)
        far = sum(size for age, size in kernel.recency.reads if age > self.kept_bytes)
        far += sum(size for age, size in kernel.recency.kept if age > self.kept_bytes)
        return Traffic(hbm=far, vmem=max(0.0, moved - far))

    def memory(self, hbm: float) -> float:
        """Seconds that bytes of the memory take."""
        return hbm / (self.parameters.hbm_share * self.device.memory_bandwidth)

    def vectors(self, cycles: float, elements: float) -> float:
        """Seconds of `cycles` on each vector of 32-bit elements."""
        return cycles * elements / self.vector_elements / self.vector_rate

    def moving(self, traffic: Traffic) -> float:
        """Seconds of loading and storing registers: by bytes, as narrow types are packed."""
        return self.vectors(self.parameters.move_cycles, traffic.all / 4)

    def arithmetic(self, kernel: Kernel) -> float:
        """Seconds of a kernel's vector ops and functions; functions have a unit of their own, but wait for the ops."""
        ops = self.vectors(self.parameters.op_cycles / self.cores.vector_alus, kernel.vector_flops)
        return ops + self.vectors(self.parameters.function_cycles, kernel.transcendentals)

    def steps(self, traffic: Traffic) -> float:
        """Steps of a kernel's pipeline: windows that follow each other, copying in and out beside computing."""
        return max(1.0, traffic.all / (self.parameters.window_bytes * self.device.cores))

    def work(self, traffic: Traffic, engines: Iterable[tuple[str, str, float]]) -> Work:
        """The time of engines that overlap in steps: `t = t0 + longest + (sum - longest) / steps`.

        With one step nothing overlaps; with many, all but the longest is hidden.

        Args:
            traffic: What moves.
            engines: (name, symbol, seconds) of each beside the memory.
        """
        named, memory = list(engines), self.memory(traffic.hbm)
        parts = [*(seconds for _, _, seconds in named), memory]
        longest, steps = max(parts), self.steps(traffic)
        time = self.fixed + longest + (sum(parts) - longest) / steps
        terms: tuple[Term, ...] = ()
        if self.explaining:
            terms = (
                Term("bytes from and to memory", "B", traffic.hbm, "B"),
                Term("bytes kept in VMEM", "B_v", traffic.vmem, "B"),
                Term(
                    "bandwidth that kernels reach", "W", self.parameters.hbm_share * self.device.memory_bandwidth, "B/s"
                ),
                Term("traffic", "mem = B/W", memory, "s"),
                *(Term(name, symbol, seconds, "s") for name, symbol, seconds in named),
                Term("steps of the pipeline", "n", steps),
                Term("fixed cost", "t0", self.fixed, "s"),
            )
        return Work(time=time, compute=max(parts[:-1], default=0.0), memory=memory, terms=terms)
