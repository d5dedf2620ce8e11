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
        165.0,
        "loops of 2^16 to 2^28 elements of 2 bytes, which neither bytes nor instructions bound",
    )
    drain_cycles: float = about(
        "from the last block's end to the kernel's: its stores arrive, caches are told",
        350.0,
        "loops of 4,096 to 2^20 elements",
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
        43.0,
        "products of 2048 x 4096 x 4096 and less",
    )
    epilogue_bytes: float = about(
        "bytes of results that an SM's warps pack and store in a cycle",
        12.0,
        "products whose results are larger than their operands",
    )
    fill_cycles: float = about(
        "a tile's set-up before its first load: descriptors, barriers, in cycles",
        2700.0,
        "products that take a few microseconds",
    )
    exchange_cycles: float = about(
        "a block's exchange between warps at the end of a sum, in cycles",
        200.0,
        "sums and normalisations of 64 to 1024 rows",
    )
    loads_ahead: float = about(
        "loads that a thread of a loop has under way",
        2.0,
        "sums of 1024 to 8192 rows down columns",
    )
    softmax_instructions: float = about(
        "instructions of a score of attention beside its exponential",
        8.0,
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
# Bytes that an SM reads from L2 a cycle when all of them do: 8.83 TB/s on an H800 of 114 SMs at 1.755 GHz (ChipBenchmarker, as
# above). What a device's file has counts where it is more, and where nothing is listed: those of Hopper's have the rate of a
# short loop, which the start of its blocks bounds.
CACHE_READS = {"Hopper": 44.0}
