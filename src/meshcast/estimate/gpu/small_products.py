"""Products that no library takes whole: loops over few elements, batches of small tiles, vectors as reductions."""

from __future__ import annotations

import math

from meshcast.estimate.gpu.elementwise import LoopDemand, demanded, looped
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.reduction import reduction
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Gemm, Reduction

REWRITTEN_FROM = 100  # elements of both matrices from which XLA calls a library or Triton for a product
TINY = 64  # sides of products that a block takes whole
TINY_STEP = 32  # elements of a step along K
TINY_BLOCKS = 16  # blocks of an SM


def is_elemental(shape: Gemm) -> bool:
    """Whether XLA makes a loop of a product: nothing to sum, or so few elements that no library is called for it.

    `xla_gpu_gemm_rewrite_size_threshold`: both matrices of a batch together have fewer than 100.
    """
    return shape.k == 1 or (shape.m + shape.n) * shape.k < REWRITTEN_FROM


def elemental_demand(kernel: Kernel, shape: Gemm, machine: GpuMachine) -> LoopDemand:
    """What a product asks for as a loop over its results, a step for each element that is summed."""
    p = machine.parameters
    elements = float(shape.batch) * shape.m * shape.n
    steps = shape.k if shape.k > 1 else 0
    issued = elements * (steps * p.step_instructions + p.loop_instructions)
    chained = p.step_cycles * steps
    return demanded(
        elements, kernel.read_bytes, kernel.written_bytes, issued, machine, recency=kernel.recency, chained=chained
    )


def is_tiny(shape: Gemm) -> bool:
    """Whether it is a batch of products that each fit a small tile, which XLA's own (Triton) kernels then take one by one."""
    return shape.batch > 1 and shape.padded and max(shape.m, shape.n) <= TINY and shape.precision == "DEFAULT"


def tiny(kernel: Kernel, shape: Gemm, machine: GpuMachine) -> GpuWork:
    """A block a product: blocks are started, and wait for their operands and steps along K wave by wave, beside the bytes."""
    p = machine.parameters
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    started = shape.batch / machine.block_rate
    waves = math.ceil(shape.batch / (machine.sms * TINY_BLOCKS))
    cycles = waves * (p.load_cycles + math.ceil(shape.k / TINY_STEP) * p.tile_step_cycles)
    cores = started + cycles / machine.clock
    time = machine.launch + machine.overlapped(cores, moved.seconds)
    return GpuWork(
        time=time,
        compute=cores,
        fixed=machine.launch,
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        formula="t = launch + |cores, mem|_p",
        terms=(
            *moved.terms,
            *machine.named(
                ("blocks started and their waves", "cores", cores, "s"),
                ("launch", "launch", machine.launch, "s"),
                ("norm of what overlaps", "p", p.overlap, ""),
            ),
        ),
    )


def summed_product(kernel: Kernel, shape: Gemm, machine: GpuMachine) -> tuple[LoopDemand | None, Kernel]:
    """A small vector-matrix product that comes as one kernel: (a loop that multiplies, the reduction of what it gives).

    Rows are multiplied on the way, without a loop; of columns products are written, and then their sums. XLA's own lowering has
    made reductions of such products before (`lower.products.vector_products`); here are those of eager PyTorch and of kernels
    told by their shape alone, as tables of measured products are. That a library's kernel for them takes as long is ours.
    """
    n = max(shape.m, shape.n)
    elements = shape.batch * n * shape.k
    # What has one row and one column lies along what is summed either way.
    rows = n == 1 or (shape.rhs_contracting_minor if shape.m == 1 else shape.lhs_contracting_minor)
    product_bytes = int(elements * 4)
    summed = Kernel(
        name="reduce",
        kind=KernelKind.REDUCTION,
        dtype="f32",
        vector_flops=2 * elements if rows else elements,
        read_bytes=kernel.read_bytes if rows else product_bytes,
        written_bytes=kernel.written_bytes,
        geometry=Reduction(shape=(shape.batch * n, shape.k), dims=(1,))
        if rows
        else Reduction(shape=(shape.batch, shape.k, n), dims=(1,)),
        recency=kernel.recency if rows else None,
    )
    return None if rows else demanded(elements, kernel.read_bytes, product_bytes, elements, machine), summed


def multiply_and_reduce(kernel: Kernel, shape: Gemm, machine: GpuMachine) -> GpuWork:
    """A small vector-matrix product."""
    multiplied, summed = summed_product(kernel, shape, machine)
    last = reduction(summed, machine)
    return last if multiplied is None else looped(multiplied, machine).then(last)
