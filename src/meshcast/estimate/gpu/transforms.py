"""Fourier transforms by cuFFT: a kernel a dimension, each a pass over the data; times from the probes `fourier` on an H200.

`t = sum over passes (launch + latency + bytes / bandwidth)`. A dimension of up to `BLOCK` numbers is transformed by one block in
shared memory; a longer one takes two factors, each a pass. Dimensions other than the innermost are read in short pieces, at
half the bandwidth and twice the latency; lengths that are no power of two take longer. Lengths with a prime factor above
`PRIME` go through two transforms of a power of two beyond twice the length (Bluestein). XLA scales inverse transforms by
cuBLAS, another pass, and copies what a transform back to reals would spoil. The probes ran alone; in programs, where other
kernels ran in between, every pass waits for its first loads.
"""

from __future__ import annotations

from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import MemoryTraffic, traffic
from meshcast.lower import Kernel
from meshcast.workload import Transform

BLOCK = 16384  # complex numbers that a block transforms in shared memory
PASS_WAITS = 2  # loads that a pass in a program waits for besides: its factors of unity, and its first numbers
PRIME = 127  # cuFFT has kernels for factors up to it


def transform(kernel: Kernel, shape: Transform, machine: GpuMachine) -> GpuWork:
    """All passes of a transform of one or several dimensions."""
    p = machine.parameters
    to_reals, of_reals = shape.kind == "IRFFT", shape.kind == "RFFT"
    halved = to_reals or of_reals
    spectrum = max(kernel.read_bytes, kernel.written_bytes) if halved else kernel.read_bytes
    memory = latency = dram = 0.0
    passes = 0
    waited = PASS_WAITS * p.wait_cycles if kernel.recency is not None else 0.0

    def add(moved: MemoryTraffic, share: float, cycles: float) -> None:
        nonlocal memory, latency, dram, passes
        memory += moved.seconds / share
        latency += (cycles + waited) / machine.clock
        dram += moved.dram_bytes
        passes += 1

    once = traffic(spectrum, spectrum, machine)
    for position, length in enumerate(reversed(shape.lengths)):
        inner = position == 0
        # Reals are transformed as half as many complex numbers; what tells them apart is done on the way.
        numbers = length // 2 if inner and halved and length > BLOCK else length
        factors, through_powers = _factors(numbers)
        for count in factors:
            strided = not inner or count != numbers
            mixed = bool(count & (count - 1))
            share = p.transform_strided if strided else p.transform_mixed if mixed or through_powers else 1.0
            cycles = p.transform_mixed_cycles if mixed else p.transform_cycles + min(count, BLOCK)
            add(once, share, cycles * (2 if strided else 1) * (2 if through_powers else 1))
        if inner and halved and length > BLOCK:
            add(once, 1.0, 0.0)  # the two halves of a spectrum, apart or together
    if shape.kind in ("IFFT", "IRFFT"):
        share = p.transform_mixed if to_reals else 1.0  # cuBLAS scales reals one by one
        add(traffic(kernel.written_bytes, kernel.written_bytes, machine), share, 0.0)
    if to_reals:
        add(traffic(kernel.read_bytes, kernel.read_bytes, machine), 1.0, 0.0)
    fixed = passes * machine.launch
    return GpuWork(
        time=fixed + latency + memory,
        compute=latency,
        fixed=fixed,
        memory=memory,
        dram_bytes=dram,
        instructions=kernel.vector_flops,
        formula="t = n launch + latency + mem",
        terms=machine.named(
            ("passes", "n", passes, ""),
            ("blocks' own latency", "latency", latency, "s"),
            ("bytes of HBM", "B", dram, "B"),
            ("memory", "mem", memory, "s"),
            ("launch", "launch", machine.launch, "s"),
        ),
    )


def _factors(length: int) -> tuple[list[int], bool]:
    """Lengths of the passes that transform a dimension, and whether they are those of powers of two instead of its own."""
    if has_large_prime(length):
        padded = 1 << (2 * length - 1).bit_length()
        return ([padded] if padded <= BLOCK else 2 * _factors(padded)[0]), True
    if length <= BLOCK:
        return [length], False
    first = 1 << (length.bit_length() // 2)
    return [first, max(1, length // first)], False


def has_large_prime(length: int) -> bool:
    """Whether a length has a prime factor above `PRIME`, which cuFFT goes around."""
    largest, divisor = 1, 2
    while divisor * divisor <= length:
        while length % divisor == 0:
            largest, length = divisor, length // divisor
        divisor += 1
    return max(largest, length) > PRIME
