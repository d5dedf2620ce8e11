"""GEMMs as XLA:GPU runs them: alignment, 1-byte operands, vectors, around the tile model."""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.elementwise import LoopDemand, demanded, looped, transpose
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.reduction import reduction
from meshcast.estimate.gpu.tiles import TiledProduct, product_time
from meshcast.estimate.rates import Rate, matrix_rate
from meshcast.lower import Kernel, KernelKind, is_summed
from meshcast.workload import ALIGNMENT, Gemm, Reduction, element_bytes

REWRITTEN_FROM = 100  # elements of both matrices from which XLA calls a library or Triton for a product
TINY = 64  # sides of products that a block takes whole
TINY_STEP = 32  # elements of a step along K
TINY_BLOCKS = 16  # blocks of an SM
_UNIT_BYTES = {"i8": 1.0, "i4": 0.5, "f8": 1.0, "f4": 0.5}  # of an operand, by the type that a unit takes


def gemm(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A matrix product with everything XLA launches for it."""
    shape = kernel.geometry
    rate = matrix_rate(kernel, machine.device)
    if not isinstance(shape, Gemm):
        return _unknown(kernel, rate, machine)
    if is_summed(shape):
        return _multiply_and_reduce(kernel, shape, machine)
    if shape.groups == 1 and is_elemental(shape):
        return looped(elemental_demand(kernel, shape, machine), machine)
    product = _tiled(kernel, shape, rate, machine)
    work = _timed(product, shape, machine)
    if is_tiny(shape):
        work = min(work, _tiny(kernel, shape, machine), key=lambda each: each.time)
    if element_bytes(shape.lhs_dtype) <= 1 and (not shape.rhs_contracting_minor or not shape.lhs_contracting_minor):
        work = _byte_product(product, shape, machine)
    return replace(work, matrix_joules=matrix_joules(kernel.matrix_flops, rate, machine.device))


def gemm_product(kernel: Kernel, machine: GpuMachine) -> TiledProduct | None:
    """The product that `gemm` asks about; None where it has no tiles, or none of this shape."""
    shape = kernel.geometry
    if not isinstance(shape, Gemm) or is_summed(shape) or (shape.groups == 1 and is_elemental(shape)):
        return None
    return _tiled(kernel, shape, matrix_rate(kernel, machine.device), machine)


def _tiled(kernel: Kernel, shape: Gemm, rate: Rate, machine: GpuMachine) -> TiledProduct:
    """The product as libraries compute it; groups share out its rows."""
    stored = element = element_bytes(shape.lhs_dtype)
    if element < 1 and rate.type in _UNIT_BYTES:  # unpacked next to units that take no fewer bits
        element = max(element, _UNIT_BYTES[rate.type])
    carried, chained = _carried(shape, rate, machine)
    return TiledProduct(
        batch=shape.batch * shape.groups if shape.groups > 1 else shape.batch,
        m=shape.m / shape.groups if shape.groups > 1 else shape.m,
        n=shape.n,
        k=shape.k,
        # Of few rows the weights are what is loaded: a step's bytes are theirs, as they are stored.
        width=min(element, element_bytes(shape.stored_dtype)) if shape.stored_dtype else element,
        read=kernel.read_bytes,
        written=kernel.written_bytes,
        unpacked=kernel.read_bytes * element / stored,
        recency=kernel.recency,
        peak=rate.flops * _aligned(shape, rate, machine),
        carried=carried,
        chained=chained,
    )


def _aligned(shape: Gemm, rate: Rate, machine: GpuMachine) -> float:
    """The share of the rate that rows of an odd number of bytes leave: no TMA, narrow loads.

    Plain cores (f32 at the highest precision) take elements one by one anyway, and reach a share of their own.
    """
    p = machine.parameters
    if not rate.on_tensor_cores:
        return min(1.0, machine.plain_slots * p.plain_share / p.tensor_share)
    if min(shape.m, shape.n) == 1:
        return 1.0
    if not shape.padded:  # cuBLAS picks kernels by the alignment of its least aligned rows
        if shape.alignment >= ALIGNMENT:
            return 1.0
        if shape.alignment >= 4:
            return p.unpadded
        return p.unpadded_odd_output if shape.reads_aligned else p.unpadded_odd
    if not shape.reads_aligned:
        return p.misaligned
    return 1.0 if shape.writes_aligned else p.misaligned_output


def _carried(shape: Gemm, rate: Rate, machine: GpuMachine) -> tuple[float, float]:
    """Cycles of a step of TF32 beside its arithmetic, a row and in all: most of its kernels load operands into registers.

    Units for matrices read shared memory themselves where numbers of 4 bytes lie along K (`wgmma` has no transposed ones, PTX
    ISA); rows of an odd number of bytes are loaded number by number.
    """
    p = machine.parameters
    if rate.type != "tf32":
        return 0.0, 0.0
    times = 1.0 if shape.reads_aligned and shape.writes_aligned else p.tf32_odd
    return p.tf32_row_cycles * times, p.tf32_step_cycles * times


def _timed(product: TiledProduct, shape: Gemm, machine: GpuMachine) -> GpuWork:
    """The product's time; packed operands are no worse than those that fill the unit's type.

    The tile that the model prefers for fewer bytes may be another one, and a little slower.
    """
    work = product_time(product, machine)
    packed = element_bytes(shape.lhs_dtype)
    if packed >= product.width:
        return work
    filled = replace(product, read=product.read * product.width / packed)
    return min(work, product_time(filled, machine), key=lambda each: each.time)


def _byte_product(product: TiledProduct, shape: Gemm, machine: GpuMachine) -> GpuWork:
    """1-byte operands must be K-major for the tensor cores: transposed first, or taken element by element."""
    direct = _timed(replace(product, peak=product.peak * machine.parameters.byte_direct), shape, machine)
    moved = GpuWork(time=0.0)
    for major, elements in (
        (shape.lhs_contracting_minor, product.batch * product.m * product.k),
        (shape.rhs_contracting_minor, product.batch * product.k * product.n),
    ):
        if not major:
            moved = moved.then(_transposed(elements, product.width, machine))
    transposed = moved.then(_timed(product, shape, machine))
    return min(direct, transposed, key=lambda work: work.time)


def _transposed(elements: float, width: float, machine: GpuMachine) -> GpuWork:
    """A transpose of elements of at most a byte: as they are packed, or unpacked on the way where that takes less."""
    ways = [transpose(elements, unpacked, machine) for unpacked in {width, 0.5, 1.0} if unpacked >= width]
    return min(ways, key=lambda work: work.time)


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


def _tiny(kernel: Kernel, shape: Gemm, machine: GpuMachine) -> GpuWork:
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
    """What XLA makes of a small vector-matrix product: (a loop that multiplies, the reduction of what it gives).

    Rows are multiplied on the way, without a loop; of columns products are written, and then their sums.
    """
    n = max(shape.m, shape.n)
    elements = shape.batch * n * shape.k
    rows = shape.rhs_contracting_minor if shape.m == 1 else shape.lhs_contracting_minor
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


def _multiply_and_reduce(kernel: Kernel, shape: Gemm, machine: GpuMachine) -> GpuWork:
    """A small vector-matrix product."""
    multiplied, summed = summed_product(kernel, shape, machine)
    last = reduction(summed, machine)
    return last if multiplied is None else looped(multiplied, machine).then(last)


def _unknown(kernel: Kernel, rate: Rate, machine: GpuMachine) -> GpuWork:
    """A product without geometry: the engine's peak at the calibrated share."""
    side = max(1.0, (kernel.matrix_flops / 2) ** (1 / 3))
    return product_time(
        TiledProduct(
            batch=1,
            m=side,
            n=side,
            k=side,
            width=element_bytes(kernel.dtype),
            read=kernel.read_bytes,
            written=kernel.written_bytes,
            peak=rate.flops,
        ),
        machine,
    )
