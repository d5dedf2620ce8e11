"""What a device is: its engines, memories and power, in SI units, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from meshcast.base import Rows, UnsupportedError, format_bytes, format_rate, nearest, shown
from meshcast.hardware.checked import DATA_SHEET, Checked

Kind = Literal["gpu", "tpu", "cpu", "npu"]

# Operand types that peaks are given for; f8, f6 and f4 stand for all formats of that width.
DTYPES = ("f64", "f32", "tf32", "bf16", "f16", "f8", "f6", "f4", "i32", "i8", "i4", "i2")

# The share of a cache that a cyclic sweep of reads may span with half of them hitting, by the cache's parts: an L40's L2 is
# one part, those of A100, H100 and H200 are two, which begin to miss at 0.7 (gpu-benches, gpu-l2-cache,
# https://github.com/te42kyfo/gpu-benches).
REACH_OF_ONE_PART, REACH_OF_TWO_PARTS = 1.05, 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of some numbers of a file: its title, its address and a note."""

    title: str
    url: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number of a file: its SI value, and the text, source and note it was written with."""

    value: float
    unit: str
    text: str
    source: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Marginal energy above idle: joules per FLOP of the matrix engine by operand dtype, and per byte of memory."""

    matrix: Mapping[str, float] = field(default_factory=dict, hash=False)
    memory_per_byte: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What a compiler must know of one core (streaming multiprocessor) of a CUDA GPU."""

    compute_capability: str  # "9.0a": the letter where architecture-specific instructions may be used
    threads: int  # that it holds at once
    registers: int
    shared_memory_bytes: int
    block_shared_memory_bytes: int  # that one thread block can have


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCores:
    """What models and compilers must know of a TPU's TensorCores, all of a device together.

    Attributes:
        target: What the TPU compiler calls the generation ("v6e").
        array_rows: Side of one systolic array along which products are summed up.
        array_columns: Side along which results come out.
        arrays: Systolic arrays of the device, each a multiply-add per cell and clock: `peak / (2 rows columns clock)`.
        sublanes: Rows of a vector register of 32-bit elements.
        lanes: Columns of a vector register.
        vector_alus: Vector operations that are issued per clock and core.
        vmem_bytes: Vector memory next to the cores.
        megacore: Whether several cores run one program on one memory; else each has its own program and memory.
    """

    target: str
    array_rows: int
    array_columns: int
    arrays: int
    sublanes: int
    lanes: int
    vector_alus: int
    vmem_bytes: int
    megacore: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnergy:
    """Joules of one event in an array of cells, by the part that spends them.

    Attributes:
        input: Of driving one row for one step: a converter to voltages (DAC), or a register.
        cell: Of one cell on a driven row: the product itself.
        bit_line: Of one cell's share of a column whose sum is read.
        converter: Of reading one column once (ADC); nothing in a digital array.
        adder: Of adding one bit behind the columns.
        register: Of holding one bit there.
        buffer_per_byte: Of a byte between the array and the memory beside it.
        vector: Of one operation of the periphery.
    """

    input: float
    cell: float
    bit_line: float
    converter: float
    adder: float
    register: float
    buffer_per_byte: float
    vector: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellArray:
    """Arrays of cells that hold weights, analogue or digital: what an accelerator with them has for products.

    Attributes:
        rows: Cells of a column, along which products are summed up.
        columns: Columns of an array; a weight takes as many as its bits need.
        arrays: Arrays that work side by side.
        cell_bits: Bits of a weight that one cell holds.
        input_bits: Bits of an activation that a row is driven with in one step; more take several steps.
        converter_bits: Of the converter (ADC) behind each column; 0 in a digital array.
        weight_bits_per_clock: Bits of weights that are written into all cells in a clock.
        double_buffered: Whether the next weights are written while others are in use.
        energy: What each of its parts spends.
    """

    rows: int
    columns: int
    arrays: int
    cell_bits: int
    input_bits: int
    converter_bits: int
    weight_bits_per_clock: int
    double_buffered: bool
    energy: CellEnergy


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationCores:
    """Cores that one collective holds while it runs; none where engines of their own move the data."""

    cores: int
    in_network_cores: int  # where the switches add


@shown
@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator: peaks in FLOP/s (dense, a multiply-add is 2), bytes, bytes/s, hertz, watts, seconds.

    Attributes:
        matrix_flops: Peak of the matrix engine by operand dtype, one of `DTYPES`.
        vector_flops: Peak of the vector units by dtype.
        transcendental_rate: exp, log, rsqrt and the like, operations/s; None where nothing is known.
        cores: Streaming multiprocessors, compute units, TensorCores or CPU cores.
        clock_hz: The highest (boost) clock.
        peak_clock_hz: The clock at which the peaks hold; vendors quote some of them below the highest clock.
        cache_bytes: The cache shared by all cores next to memory: L2, Infinity Cache, VMEM or CMEM.
        cache_partitions: Parts of that cache, each next to some of the cores; 1 where all are as near.
        launch_latency_s: Fixed cost of one kernel on the device, apart from its work.
        host_bandwidth: bytes/s between it and its host's memory in one direction, of the link (PCIe, NVLink-C2C); None
            where nothing is known.
        idle_watts: Power drawn by a card that is on and does nothing; None where it was not measured.
        energy: Measured energy per FLOP and byte; None where it was not measured.
        core: What compiling for a CUDA GPU takes; None where it is not given.
        tensor_cores: A TPU's systolic arrays and vector units; None where they are not given.
        cells: An NPU's arrays of cells; None where they are not given.
        communication: Cores that collectives hold; None where engines of their own move the data, or nothing is known.
        checked: How its predictions were checked; a file of one's own counts as a data sheet.
        bases: Names of the devices that its file starts from, the nearest first.
        default_cluster: The catalogue's cluster of many such devices; None where there is none.
        facts: Every number of the file by dotted key ("matrix.bf16"), with its source.
    """

    name: str
    title: str
    vendor: str
    kind: Kind
    architecture: str
    released: str
    aliases: tuple[str, ...] = ()
    matrix_flops: Mapping[str, float] = field(hash=False)
    vector_flops: Mapping[str, float] = field(hash=False)
    transcendental_rate: float | None
    cores: int
    clock_hz: float
    peak_clock_hz: float
    memory_bytes: float
    memory_bandwidth: float
    cache_bytes: float
    cache_bandwidth: float | None
    cache_partitions: int = 1
    tdp_watts: float
    idle_watts: float | None
    launch_latency_s: float
    host_bandwidth: float | None = None
    energy: Energy | None = field(default=None, hash=False)
    core: Core | None = None
    tensor_cores: TensorCores | None = None
    cells: CellArray | None = None
    communication: CommunicationCores | None = None
    checked: Checked = field(default=DATA_SHEET, compare=False)  # of equal devices all times are, whoever checked them
    bases: tuple[str, ...] = field(default=(), repr=False)
    default_cluster: str | None = None
    notes: str = ""
    facts: Mapping[str, Fact] = field(hash=False, repr=False)
    sources: Mapping[str, Source] = field(hash=False, repr=False)

    @classmethod
    def load(cls, name_or_path: str | Path) -> Device:
        """The device of the catalogue with this name or alias, or in this TOML file.

        Raises:
            UnsupportedError: No such device.
            InputError: The file cannot be read or does not follow the schema.
        """
        from meshcast.hardware.registry import load_device  # which makes devices

        return load_device(name_or_path)

    def summary_rows(self) -> Rows:
        """The data sheet in a few lines."""
        peaks = ", ".join(f"{format_rate(rate, 'FLOP/s')} {dtype}" for dtype, rate in self.matrix_flops.items())
        return [
            ("device", f"{self.name}: {self.title}"),
            ("matrix peaks", peaks),
            ("memory", f"{format_bytes(self.memory_bytes)} at {format_rate(self.memory_bandwidth)}"),
            ("cache", format_bytes(self.cache_bytes)),
            ("cores", f"{self.cores} at {self.clock_hz / 1e9:.2f} GHz"),
            ("power", f"{self.tdp_watts:.0f} W"),
        ]

    @property
    def platform(self) -> str:
        """What JAX calls its platform: programs that are captured from functions are lowered for it."""
        return {"tpu": "tpu", "cpu": "cpu", "npu": "cpu"}.get(
            self.kind, "rocm" if self.vendor.lower() == "amd" else "cuda"
        )

    @property
    def cache_reach(self) -> float:
        """Bytes that can be read again and again with half of the reads hitting the cache."""
        return self.cache_bytes * (REACH_OF_ONE_PART if self.cache_partitions == 1 else REACH_OF_TWO_PARTS)

    def matrix_peak(self, dtype: str) -> float:
        """Dense FLOP/s of the matrix engine on `dtype` operands.

        Raises:
            UnsupportedError: The engine does not take this dtype; no ratio to another dtype is guessed.
        """
        return self._peak(dtype, self.matrix_flops, "matrix engine")

    def _peak(self, dtype: str, peaks: Mapping[str, float], engine: str) -> float:
        if dtype not in peaks:
            raise UnsupportedError(f"{self.name}: no peak of the {engine} for {dtype!r}", fix=nearest(dtype, peaks))
        return peaks[dtype]
