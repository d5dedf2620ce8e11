"""What the simulator of a GPU's SMs knows beside a device's file: latencies, and what launches, units and libraries take."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.estimate.calibration import about


@dataclass(frozen=True, slots=True, kw_only=True)
class SmParameters:
    """Costs in cycles and shares of what a data sheet says, each with the measured programs that moved it most.

    All of them are of the fitted half of the one-op programs on an H200 (`measurements.halves`), and none of a transpose, a
    movement of data or a whole model (`docs/gpu-simulator.md`).
    """

    launch_share: float = about(
        "an empty kernel, as a share of the device's launch latency",
        0.46,
        "loops of 4,096 elements",
    )
    start_cycles: float = about(
        "cycles for which a block that starts holds its SM's launch unit",
        158.0,
        "loops of 2^16 to 2^28 elements of 2 bytes, which neither bytes nor instructions bound",
    )
    cold_starts: float = about(
        "the same for the blocks that fill an SM first, whose instructions it has yet to fetch, over that",
        1.15,
        "loops of 2^16 to 2^20 elements beside those of 2^22 and more",
    )
    drain_cycles: float = about(
        "from the last block's end to the kernel's: its stores arrive, caches are told",
        420.0,
        "loops of 4,096 to 2^20 elements",
    )
    reach_share: float = about(
        "share of the device's cache reach at which half of a kernel's own sweep still hits",
        0.65,
        "sums and loops over 30 to 70 MB, among them a profile's probes",
    )
    memory_share: float = about(
        "share of the memory's bandwidth that reads reach",
        0.945,
        "sums of rows of 268 MB",
    )
    write_cost: float = about(
        "what a byte that is written costs the memory, in bytes read: turning the bus",
        1.1,
        "loops over 0.5 to 3 GB with one and two operands",
    )
    tensor_share: float = about(
        "share of the tensor cores' rate inside of a tile's main loop",
        0.87,
        "products of 2048 x 4096 x 4096 and more",
    )
    step_cycles: float = about(
        "a K-step's barriers, which only another block of the SM hides, in cycles",
        37.6,
        "products of 2048 x 4096 x 4096 and less",
    )
    epilogue_bytes: float = about(
        "bytes of results that an SM's warps pack and store in a cycle",
        9.0,
        "products whose results are larger than their operands",
    )
    epilogue_issue: float = about(
        "share of that time for which a tile's warps keep their SM's schedulers busy: another tile's can pack in the rest",
        0.375,
        "products whose results are larger than their operands",
    )
    fill_cycles: float = about(
        "a tile's set-up before its first load: descriptors, barriers, in cycles",
        3465.0,
        "products that take a few microseconds",
    )
    coalesced_reads: float = about(
        "bytes that L2 reads for a byte of operands that tiles fetch: neighbouring SMs ask for the same panels at the same time",
        0.77,
        "products of 2048 x 4096 x 4096 and more",
    )
    exchange_cycles: float = about(
        "a block's exchange between warps at the end of a sum, in cycles",
        180.0,
        "sums and normalisations of 64 to 1024 rows",
    )
    turned_instructions: float = about(
        "instructions of an element that is turned from a row into a column: addresses, both ways through shared memory",
        34.0,
        "transposes of 0.1 to 30 MB among a profile's probes",
    )
    loads_ahead: float = about(
        "loads that a thread of a loop has under way",
        2.0,
        "sums of 1024 to 8192 rows down columns",
    )
    softmax_instructions: float = about(
        "instructions of a score of attention beside its exponential",
        9.0,
        "attention by cuDNN, 512 to 8192 keys",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Cycles until a load's value is there: from L2, and from memory."""

    cache: float
    memory: float


# Pointer chases by others: V100, RTX 4090, GH200 and B200 by github.com/markdewing/AI_kernels (latency/README.md), A100 by
# github.com/chanzhennan/ChipBenchmarker (README.md), which has 273 and 673 for an H800.
LATENCIES = {
    "Volta": Latency(cache=221, memory=460),
    "Ampere": Latency(cache=332, memory=499),
    "Ada Lovelace": Latency(cache=296, memory=636),
    "Hopper": Latency(cache=281, memory=690),
    "Blackwell": Latency(cache=295, memory=860),
}
UNKNOWN_LATENCY = LATENCIES["Hopper"]
# Bytes that all SMs read from L2 a second, which its slices bound and not the SMs: an H800 of 114 SMs (ChipBenchmarker, as
# above). What a device's file has counts where it is more, and where nothing is listed: those of Hopper's have the rate of a
# short loop, which the start of its blocks bounds.
CACHE_READS = {"Hopper": 8.83e12}
