"""A GPU as the models see it: a device's data sheet with the calibrated efficiencies applied."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside, NumberColumn, larger, largest, made_quickly, raw
from meshcast.estimate import work
from meshcast.estimate.explanation import Term
from meshcast.estimate.gpu.parameters import GpuParameters
from meshcast.hardware import REACH_OF_TWO_PARTS, Device, device_at, devices_of
from meshcast.lower import CostKey

if TYPE_CHECKING:
    from meshcast.estimate.gpu.elementwise import LoopDemand
    from meshcast.estimate.gpu.tile_ways import TiledProduct

# Where a p-norm joins arithmetic and memory, `d ln time / d ln compute` is `compute^p / (compute^p + memory^p)`: the share of
# the time that follows the clock. p is the norm's uncalibrated value (`Parameters.overlap`), and not fitted apart: measured
# clocks tell products and streams, 1 and 0 by any p. The fitted one, some 14, matters in between: where arithmetic is 0.8 of
# memory the share is 0.29 by this one and 0.04 by that.
CLOCKED_NORM = 4
BLOCK_OF_POINTS = 32  # points of a sweep whose tiles are looked at together
_SCHEDULERS, _WARP = 4, 32  # of an SM, since Maxwell; threads of one instruction


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork(work.TimedWork):
    """The seconds of one kernel by engine, and the bytes and FLOPs that its energy follows from.

    `time` holds at the full clock; `clocked` is the share of it that grows when the clock falls. What keeps the cores busy
    beside arithmetic is threads that are started, updates in turns and loads waited for, to carry data.
    """

    dram_bytes: float = 0.0
    matrix_joules: float = 0.0
    instructions: float = 0.0

    @property
    def clocked(self) -> float:
        """The share of the time that follows the clock: all of it when compute-bound, none when memory-bound."""
        if not self.compute and not self.memory:
            return 0.0
        compute, memory = self.compute**CLOCKED_NORM, self.memory**CLOCKED_NORM
        return compute / (compute + memory)

    def then(self, other: GpuWork) -> GpuWork:
        """Both, one after the other."""
        return GpuWork(
            time=self.time + other.time,
            compute=self.compute + other.compute,
            memory=self.memory + other.memory,
            dram_bytes=self.dram_bytes + other.dram_bytes,
            matrix_joules=self.matrix_joules + other.matrix_joules,
            instructions=self.instructions + other.instructions,
            computing=self.arithmetic + other.arithmetic,
            fixed=self.overhead + other.overhead,
            formula=f"{self.formula}; then {other.formula}" if self.formula else other.formula,
            terms=self.terms + other.terms,
        )


# Lanes of a warp; threads and blocks that an SM of NVIDIA's data-centre GPUs holds (CUDA C++ Programming Guide).
WARP, THREADS_PER_SM, BLOCKS_PER_SM = 32, 2048, 32
# Shared memory of a core whose file does not say: AMD's compute units have 64 KiB of local data share (CDNA 3 white paper).
SHARED_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuArchitecture:
    """Abilities of an architecture's kernels that its data sheets do not give as numbers.

    Attributes:
        clusters: Whether neighbouring blocks share what they fetch, by copies that run beside the arithmetic (thread
            block clusters and TMA, since Hopper).
        paired: Whether two SMs compute one tile, each holding one half of an operand for both (tcgen05 of Blackwell).
    """

    clusters: bool = False
    paired: bool = False


GENERATIONS = {
    "Hopper": GpuArchitecture(clusters=True),
    "Blackwell": GpuArchitecture(clusters=True, paired=True),
}
EARLIER = GpuArchitecture()


_LOOPS: KeptBeside[MutableMapping[CostKey, LoopDemand]] = KeptBeside(64)


@dataclass(frozen=True, kw_only=True)
class GpuMachine:
    """Rates of one device in SI units."""

    device: Device
    parameters: GpuParameters
    cold_cache: bool = False
    explaining: bool = False
    points: int | None = None  # of a sweep, where the device stands for theirs; None: it is one device
    products: dict[TiledProduct, GpuWork] = field(default_factory=dict, init=False, repr=False, compare=False)  # timed

    @cached_property
    def loops(self) -> MutableMapping[CostKey, LoopDemand]:
        """What loops ask for, to be added to: shared by machines with the same parameters and ratio of f64 lanes."""
        vector = self.device.vector_flops
        return _LOOPS.of(self.parameters, (vector["f32"], vector.get("f64")), WeakKeyDictionary)

    def named(self, *terms: tuple[str, str, float, str]) -> tuple[Term, ...]:
        """Terms (name, symbol, value, unit) of a formula; none unless somebody asks, as estimates are made in bulk."""
        return tuple(Term(*term) for term in terms) if self.explaining else ()

    def issuing(self, issued: float, seconds: float) -> tuple[tuple[str, str, float, str], ...]:
        """The terms of issuing instructions, for `named`."""
        return (
            ("instructions", "i", issued, ""),
            ("instructions per second", "I", self.instruction_rate, "1/s"),
            ("issuing instructions", "issue = i/I", seconds, "s"),
        )

    @cached_property
    def sms(self) -> int:
        """Streaming multiprocessors."""
        return self.device.cores

    @cached_property
    def blocks(self) -> list[tuple[npt.NDArray[np.int64], GpuMachine]]:
        """Points of a sweep that have about as many SMs, with the machine that stands for them."""
        points = self.points or 1
        order = np.argsort(np.broadcast_to(raw(self.sms), points), kind="stable")
        if points <= BLOCK_OF_POINTS:
            return [(order, self)]
        found: list[tuple[npt.NDArray[np.int64], GpuMachine]] = []
        for places in np.array_split(order, -(-points // BLOCK_OF_POINTS)):
            device = device_at(self.device, places)
            several = devices_of(device)
            found.append((places, replace(self, device=device, points=len(several) if several is not None else None)))
        return found

    @cached_property
    def plain_slots(self) -> float:
        """Instructions that a scheduler can issue while its plain cores are busy with one of a warp.

        Four schedulers of an SM issue one a cycle each. With 32 cores each (Hopper and later) a load of operands takes the place
        of a multiplication, which is what products on plain cores were measured with; with 16 (Volta, A100: white papers of both,
        the SM's four partitions) a warp's instruction keeps them busy for two cycles, and every second place is free.
        """
        cores = self.device.vector_flops["f32"] / (2 * self.sms * self.device.peak_clock_hz * _SCHEDULERS)
        return max(1.0, float(round(_WARP / cores)))

    @cached_property
    def clock(self) -> float:
        """The highest clock, in hertz: what short kernels run at."""
        return self.device.clock_hz

    @cached_property
    def boost(self) -> float:
        """How far the highest clock exceeds the one that the data sheet's peaks hold at."""
        return self.device.clock_hz / self.device.peak_clock_hz

    @cached_property
    def launch(self) -> float:
        """Seconds of the smallest kernel."""
        return self.parameters.launch_share * self.device.launch_latency_s

    @cached_property
    def gap(self) -> float:
        """Seconds between two kernels of a stream."""
        return self.device.launch_latency_s - self.launch

    @cached_property
    def block_rate(self) -> float:
        """Thread blocks started per second: what bounds kernels of many short threads."""
        return self.parameters.blocks_per_sm_cycle * self.sms * self.clock

    @cached_property
    def instruction_rate(self) -> float:
        """Thread instructions per second: one per f32 lane and cycle."""
        return self.device.vector_flops["f32"] / 2 * self.boost

    @cached_property
    def generation(self) -> GpuArchitecture:
        """Abilities of this architecture's kernels."""
        return GENERATIONS.get(self.device.architecture, EARLIER)

    @cached_property
    def shared_bytes(self) -> int:
        """Shared memory of an SM."""
        return self.device.core.shared_memory_bytes if self.device.core is not None else SHARED_BYTES

    @cached_property
    def cache_bandwidth(self) -> float:
        """L2 bytes per second; where the catalogue has none, the H200's 29 bytes per SM and cycle."""
        bandwidth = self.device.cache_bandwidth or 29.0 * self.sms * self.clock
        return self.parameters.cache_share * larger(bandwidth, self.device.memory_bandwidth)

    @cached_property
    def cache_window(self) -> tuple[float, float]:
        """Footprints up to which everything stays in L2, and above which nothing does."""
        p = self.parameters
        capacity = (
            self.device.cache_reach / REACH_OF_TWO_PARTS
        )  # the shares were fitted on an H200, whose cache has two
        return p.cache_full * capacity, max(p.cache_none, p.cache_full * 1.01) * capacity

    def overlapped(self, *seconds: float) -> float:
        """Times of engines that work side by side: their p-norm, between the longest and the sum."""
        longest = largest(seconds)
        if not longest:
            return 0.0
        p, powers = self.parameters.overlap, 0.0
        for each in seconds:
            powers += (each / longest) ** p
        joined: Any = longest * powers ** (1 / p)
        return joined if isinstance(joined, NumberColumn) else float(joined)  # type: ignore[return-value]
