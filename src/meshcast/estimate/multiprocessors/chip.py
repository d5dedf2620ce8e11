"""A GPU as the simulator sees it: a device's file in units of its SMs and of their cycles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from meshcast.estimate.gpu.machine import EARLIER, GENERATIONS, GpuArchitecture
from meshcast.estimate.multiprocessors.parameters import CACHE_READS, LATENCIES, UNKNOWN_LATENCY, Latency, SmParameters
from meshcast.estimate.multiprocessors.queues import Station, channels, slices
from meshcast.hardware import Core, Device

# That an SM takes from L2 in a cycle: as much as a slice of L2 gives (A100 white paper: 5,120 bytes a clock from 80 slices). None
# is published of an SM: that they are alike is ours.
PORT_BYTES = 64
SHARED_BYTES = 128  # that an SM's shared memory gives in a cycle: 32 banks of 4 bytes (CUDA C++ Programming Guide)
REGISTER_BYTES = 4
RARELY = 0.01  # the share of misses up to which a block waits for none: about one load of its 128 threads


@dataclass(frozen=True, kw_only=True)
class Chip:
    """Rates a cycle of the highest clock."""

    device: Device
    parameters: SmParameters

    @cached_property
    def core(self) -> Core:
        """What an SM has."""
        assert self.device.core is not None  # see `GpuSimulated.supports`
        return self.device.core

    @cached_property
    def sms(self) -> int:
        """Streaming multiprocessors."""
        return self.device.cores

    @cached_property
    def clock(self) -> float:
        """Hertz."""
        return self.device.clock_hz

    @cached_property
    def port_bytes(self) -> float:
        """Bytes between one SM and L2."""
        return float(PORT_BYTES)

    @cached_property
    def cache_bytes(self) -> float:
        """Bytes between all SMs and L2; ports alone limit it where neither the file nor `CACHE_READS` says more."""
        bandwidth = self.device.cache_bandwidth or PORT_BYTES * self.sms * self.clock
        read = CACHE_READS.get(self.device.architecture, 0.0)
        return max(read, bandwidth, self.device.memory_bandwidth) / self.clock

    @cached_property
    def memory_bytes(self) -> float:
        """Bytes read from memory."""
        return self.device.memory_bandwidth * self.parameters.memory_share / self.clock

    @cached_property
    def slices(self) -> Station:
        """Of L2."""
        return slices(self.device.cache_reach, self.cache_bytes)

    @cached_property
    def channels(self) -> Station:
        """Of the memory."""
        return channels(self.device.architecture, self.device.memory_bandwidth, self.clock)

    def queued(self, cached: float, dram: float) -> tuple[float, float]:
        """Cycles that a line waits for its slice, and one that misses for its channel, at so many bytes a cycle of either."""
        nominal = self.memory_bytes / self.parameters.memory_share
        return self.slices.wait(cached / self.cache_bytes), self.channels.wait(dram / nominal)

    def dram_bytes(self, read: float, written: float) -> float:
        """Bytes of memory traffic, in bytes read."""
        return read + written * self.parameters.write_cost

    @cached_property
    def latency(self) -> Latency:
        """Of loads."""
        return LATENCIES.get(self.device.architecture, UNKNOWN_LATENCY)

    def load_cycles(self, missed: float) -> float:
        """A load's latency where a share of them misses L2: threads of a block wait for the last of theirs."""
        return self.latency.memory if missed > RARELY else self.latency.cache

    @cached_property
    def lanes(self) -> float:
        """Instructions of single threads that an SM issues: one a lane of its f32 units."""
        return self.device.vector_flops["f32"] / 2 / (self.sms * self.device.peak_clock_hz)

    def multiply_adds(self, flops: float) -> float:
        """Multiply-adds of an SM at a rate of the data sheet."""
        return flops / 2 / (self.sms * self.device.peak_clock_hz)

    @cached_property
    def generation(self) -> GpuArchitecture:
        """What the architecture's kernels can do."""
        return GENERATIONS.get(self.device.architecture, EARLIER)

    @cached_property
    def cache_reach(self) -> float:
        """Bytes that L2 holds: what it has less the copies that its parts keep of each other's lines (`cache.swept`'s half)."""
        return self.device.cache_reach * self.parameters.reach_share

    def seconds(self, cycles: float) -> float:
        """Of cycles at the highest clock."""
        return cycles / self.clock

    @cached_property
    def launch(self) -> float:
        """Seconds of a kernel without blocks."""
        return self.parameters.launch_share * self.device.launch_latency_s
