"""Queues before the slices of L2 and before the memory's channels: how long a load waits for others beside its latency.

Addresses are hashed: a line belongs to one slice of L2 and to one channel of the memory, any with the same chance, so that lines
come to each at random. A slice gives a line in `s = 128 B / (its bytes a cycle)`, always; a channel takes as long for its
bytes, and `r` more where the line lies in another row of its bank than the one before, once for every `n` lines of a row:
banks hide that from the bandwidth, not from those who wait. At a load `u` of either the mean wait is (Pollaczek 1930,
Khinchine 1932)

    w = u E[S^2] / (2 s (1 - u)),    E[S^2] = s^2 of a slice, ((n - 1) s^2 + (s + r)^2) / n of a channel.

A hit waits for its slice, a miss for its slice and its channel. The load is what blocks ask for at the time (`events.py`):
nearly none in small kernels, and 0.9 to 0.95 of the channels in a loop over gigabytes, where a load takes half as long again
as it does alone.
"""

from __future__ import annotations

from dataclasses import dataclass

LINE = 128  # bytes
SLICE_BYTES = (
    512 * 1024
)  # that a slice holds: 40 MB in 80 slices of an A100 (its white paper); of others as much (ours)
# Bytes a second of one channel (a pseudo-channel of HBM): 900 GB/s of a V100's 64, 2.04 TB/s of an A100's 80, 864 GB/s of an
# L40S's 24 of GDDR6, 4.8 TB/s of an H200's 192, 8 TB/s of a B200's 256 (JEDEC JESD235, JESD238, JESD250: channels of a stack
# or chip).
CHANNEL_RATES = {"Volta": 14.1e9, "Ampere": 25.5e9, "Ada Lovelace": 36e9, "Hopper": 25e9, "Blackwell": 31.3e9}
UNKNOWN_RATE = CHANNEL_RATES["Hopper"]
ROW_BYTES = 1024  # of a bank that are open at once, in one pseudo-channel (JESD235, JESD238)
ROW_SECONDS = 28e-9  # to close a row and open another: tRP + tRCD, 14 ns each
FULL = 0.98  # the largest load that a wait is worked out for


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """Servers that are alike, each with a queue of its own, among which lines are hashed.

    Attributes:
        count: Servers.
        service: Cycles of a line.
        square: The mean of the square of cycles for which a line keeps its server.
    """

    count: int
    service: float
    square: float

    def wait(self, load: float) -> float:
        """Mean cycles in the queue where so large a share of all servers' time is asked for."""
        load = min(load, FULL)
        return load * self.square / (2 * self.service * (1 - load))


def slices(capacity: float, bytes_a_cycle: float) -> Station:
    """The slices of an L2 that holds and gives so many bytes."""
    count = max(1, round(capacity / SLICE_BYTES))
    service = LINE * count / bytes_a_cycle
    return Station(count=count, service=service, square=service**2)


def channels(architecture: str, bandwidth: float, clock: float) -> Station:
    """The channels of a memory of so many bytes a second, in cycles of a clock."""
    count = max(1, round(bandwidth / CHANNEL_RATES.get(architecture, UNKNOWN_RATE)))
    service = LINE * count / bandwidth * clock
    lines, row = ROW_BYTES // LINE, ROW_SECONDS * clock
    return Station(count=count, service=service, square=((lines - 1) * service**2 + (service + row) ** 2) / lines)
