"""A TPU as the models see it: a device's data sheet with the calibrated costs applied, and what a kernel takes on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from meshcast.base import UnsupportedError
from meshcast.estimate.explanation import Term
from meshcast.estimate.tpu.parameters import TpuParameters
from meshcast.estimate.work import TimedWork as TimedWork
from meshcast.hardware import Device, TensorCores
from meshcast.lower import Kernel, KernelKind, Recency

# Generations whose vector units compute in bf16; the others convert to f32 and back, and the TPU
# compiler writes these conversions into its programs up to v5p.
BF16_VECTORS = frozenset({"v6e", "tpu7x"})
HALF = "f16"  # no unit computes in it
WORD_BYTES = 4  # of one element of a vector register, whose lanes are 32 bits wide; narrower types are packed into them


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuTraffic:
    """Bytes of a kernel: those from and to memory; the others are kept in VMEM between kernels."""

    read: float
    written: float
    hbm_read: float
    hbm_written: float
    beside: float = 0.0  # that a copy of its own brings on chip meanwhile, for a later kernel

    @property
    def hbm(self) -> float:
        """From and to memory."""
        return self.hbm_read + self.hbm_written

    @property
    def all(self) -> float:
        """Every byte passes through VMEM, wherever it comes from."""
        return self.read + self.written


@dataclass(frozen=True, kw_only=True)
class TpuMachine:
    """A device with the calibrated parameters; seconds, bytes, hertz. All TensorCores of it work on one kernel."""

    device: Device
    parameters: TpuParameters
    explaining: bool = False
    busy: float | None = (
        None  # of its cores, those that a kernel is large enough for; all of them where nothing is said
    )

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
        return (self.busy or self.device.cores) * self.device.clock_hz

    @cached_property
    def has_bf16_vectors(self) -> bool:
        """Whether vector units take bf16 as it is."""
        return self.cores.target in BF16_VECTORS

    @cached_property
    def vector_elements(self) -> int:
        """32-bit elements of one vector."""
        return self.cores.sublanes * self.cores.lanes

    def fixed(self, traffic: TpuTraffic) -> float:
        """Seconds of a kernel that does nothing: the scalar core's part, and the latencies of its first copy and its last."""
        p = self.parameters
        if self.kept_beside:
            copies = (traffic.read > 0) + (traffic.written > 0)
        else:
            copies = (traffic.hbm_read > 0) + (traffic.hbm_written > 0)
        return p.kernel_cycles / self.device.clock_hz + copies * p.copy_ns * 1e-9

    @cached_property
    def kept_beside(self) -> bool:
        """Whether values are kept in a memory beside VMEM (v4's CMEM), from which every kernel copies them in and out.

        libtpu 0.0.42.1 places them there on v4, in VMEM itself on later generations. Normalisations of few rows on v4
        (SCALE-Sim-validation, five kernels) begin at five times the two latencies of a kernel that reads and writes memory.
        """
        return self.device.cache_bytes > self.cores.vmem_bytes

    @cached_property
    def kept_bytes(self) -> float:
        """What stays on chip between kernels: of VMEM what kernels' windows leave, or all of the memory beside it (CMEM)."""
        if self.kept_beside:
            return float(self.device.cache_bytes)
        return self.parameters.vmem_share * self.cores.vmem_bytes

    def traffic(self, kernel: Kernel) -> TpuTraffic:
        """Where a kernel's bytes lie: what was touched, or will be read, within VMEM's reach never leaves it.

        An age is what is moved in between, the value's own bytes included (`lower.schedule.last_uses`). Nothing known: everything
        was just touched. A compiler that has placed every value is believed. An argument that is read again soon comes on
        chip by a copy of its own, which libtpu starts beside the kernel that reads it first, from memory all the same: it
        is read twice then.
        """
        if kernel.on_chip_bytes is not None:
            return TpuTraffic(
                read=kernel.read_bytes + kernel.on_chip_bytes - kernel.on_chip_written,
                written=kernel.written_bytes + kernel.on_chip_written,
                hbm_read=kernel.read_bytes,
                hbm_written=kernel.written_bytes,
            )
        recency = kernel.recency or Recency()
        return TpuTraffic(
            read=kernel.read_bytes,
            written=kernel.written_bytes,
            hbm_read=sum(size for age, size in recency.reads if age > self.kept_bytes),
            hbm_written=sum(size for age, size in recency.kept if age > self.kept_bytes),
            beside=sum(size for age, size in recency.again if age <= self.kept_bytes),
        )

    @property
    def _shares_memory(self) -> bool:
        """Whether several cores run a kernel on one memory."""
        cores = self.device.tensor_cores
        return self.device.cores > 1 and (cores is None or cores.megacore)

    @cached_property
    def bandwidth(self) -> float:
        """Bytes per second that copies reach."""
        p = self.parameters
        share = p.hbm_share * (p.megacore_share if self._shares_memory else 1.0)
        return share * self.device.memory_bandwidth

    @cached_property
    def copying(self) -> TpuMachine:
        """The same machine where nothing but copies uses the memory: no core has a part in them."""
        p = self.parameters
        return replace(self, parameters=replace(p, hbm_share=p.copy_share, megacore_share=1.0))

    def sharing(self, windows: float) -> TpuMachine:
        """The same machine where a kernel of so many windows runs: cores that work on one kernel share whole windows."""
        return replace(self, busy=min(self.device.cores, max(1.0, windows))) if self._shares_memory else self

    @cached_property
    def counting(self) -> TpuMachine:
        """The same machine where the scalar core alone is at work: beside vectors, it has no kernel to begin."""
        return replace(self, parameters=replace(self.parameters, kernel_cycles=self.parameters.counter_cycles))

    def memory(self, hbm: float) -> float:
        """Seconds that bytes of the memory take."""
        return hbm / self.bandwidth

    def vectors(self, cycles: float, elements: float) -> float:
        """Seconds of `cycles` on each vector of 32-bit elements."""
        return cycles * elements / self.vector_elements / self.vector_rate

    def moving(self, moved: float) -> float:
        """Seconds of loading or storing registers: by bytes, as narrow types are packed."""
        return self.vectors(self.parameters.move_cycles, moved / WORD_BYTES)

    def ops(self, kernel: Kernel) -> float:
        """Seconds of a kernel's vector ops."""
        return self.vectors(self.parameters.op_cycles / self.cores.vector_alus, kernel.vector_flops)

    def functions(self, kernel: Kernel) -> float:
        """Seconds of its transcendental functions, which have a unit of their own."""
        return self.vectors(self.parameters.function_cycles, kernel.transcendentals)

    def arithmetic(self, kernel: Kernel) -> float:
        """Seconds of ops and functions: side by side, but for a reduction, whose running sum waits for both."""
        ops, functions = self.ops(kernel), self.functions(kernel)
        return ops + functions if kernel.kind is KernelKind.REDUCTION else max(ops, functions)

    def converting(self, dtype: str, read: float, written: float) -> float:
        """Seconds of turning so many elements of f16 into f32 and back; none of another type."""
        return self.turning(read, written) if dtype == HALF else 0.0

    def turning(self, read: float, written: float) -> float:
        """Seconds of turning so many elements of f16 into f32 and back, where vector units have no 16-bit arithmetic.

        Nobody has published times of f16 on later generations; there it is taken as bf16 is.
        """
        if self.has_bf16_vectors:
            return 0.0
        p = self.parameters
        return self.vectors(p.half_in_cycles, read) + self.vectors(p.half_out_cycles, written)

    def work(
        self,
        traffic: TpuTraffic,
        engines: Sequence[Term],
        steps: float,
        terms: Iterable[Term] = (),
        *,
        turns: bool = False,
        computing: float | None = None,
    ) -> TimedWork:
        """A kernel's time: `t = t0 + longest + (sum - longest) / n` of its engines and the memory.

        A kernel goes through its data in `n` steps, each of which is copied in, worked on and copied out while others
        are: with one step nothing overlaps, with many all but the slowest engine is hidden. In turns, what is copied out
        counts as the last engine's instead of the memory's, which is never faster than all of its bytes:
        `t = t0 + max(mem, longest + (sum - longest) / n)`. Bytes that are brought on chip beside it take the memory's time too,
        and no part in its steps: never less than `t0 + (B + B_b) / W`.

        Args:
            traffic: What moves.
            engines: Seconds of each engine beside the memory.
            steps: `n`, at least 1.
            terms: What these are made of.
            turns: Whether the last engine's results are copied out in turn with its work, not beside it.
            computing: Seconds that arithmetic alone keeps the engines busy; all that the longest is, by default.
        """
        memory = self.memory(traffic.hbm)
        parts = [*(engine.value for engine in engines), memory]
        out = self.memory(traffic.hbm_written) if turns else 0.0
        if turns:
            parts[-2:] = [parts[-2] + out, memory - out]
        longest, fixed = max(parts), self.fixed(traffic)
        shared = memory + self.memory(traffic.beside)  # the copy beside has its part of the bandwidth
        work = TimedWork(
            time=fixed + max(shared, longest + (sum(parts) - longest) / steps),
            compute=max((engine.value for engine in engines), default=0.0),
            memory=shared,
            computing=computing,
            fixed=fixed,
        )
        if not self.explaining:
            return work
        names = [*(engine.symbol for engine in engines), "mem"]
        overlapped = "longest + (sum - longest) / n"
        if turns:
            names[-2:] = [f"{names[-2]} + out", "mem - out"]
        if turns or traffic.beside:
            overlapped = f"max({'shared' if traffic.beside else 'mem'}, {overlapped})"
        return replace(
            work,
            formula=f"t = t0 + {overlapped}, of {', '.join(names)}",
            terms=(
                *self.copies(traffic),
                *((Term("and those beside it", "shared = mem + B_b/W", shared, "s"),) if traffic.beside else ()),
                *((Term("of it results copied out", "out", out, "s"),) if turns else ()),
                *terms,
                *engines,
                Term("steps", "n", steps),
                Term("fixed cost", "t0", fixed, "s"),
            ),
        )

    def copies(self, traffic: TpuTraffic) -> tuple[Term, ...]:
        """The terms of the memory's time, for explanations: bytes, bandwidth, seconds."""
        return (
            Term("bytes from and to memory", "B", traffic.hbm, "B"),
            Term("bytes kept on chip", "B_v", max(0.0, traffic.all - traffic.hbm), "B"),
            *((Term("bytes copied in beside it", "B_b", traffic.beside, "B"),) if traffic.beside else ()),
            Term("bandwidth that copies reach", "W", self.bandwidth, "B/s"),
            Term("copies", "mem = B/W", self.memory(traffic.hbm), "s"),
        )
