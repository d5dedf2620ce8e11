"""GEMMs as XLA:GPU runs them: alignment, 1-byte operands, vectors, around the tile model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from meshcast.base import larger
from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.elementwise import loop, looped, transpose
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.small_products import elemental_demand, is_elemental, is_tiny, multiply_and_reduce, tiny
from meshcast.estimate.gpu.tile_ways import TiledProduct
from meshcast.estimate.gpu.tiles import product_time
from meshcast.estimate.rates import Rate, matrix_rate
from meshcast.lower import Kernel, computes_operands, is_summed
from meshcast.workload import ALIGNMENT, Convolution, Gemm, element_bytes

TILED_SIDE = 32  # rows and columns from which a product has tiles along both
# To widen an element of 2 or 4 bits in registers: eight of them take nine (Kim et al. 2022, arXiv:2211.10017, to f16; to bytes no
# more), once for every tile of the other operand that it meets.
UNPACKING = 9 / 8
UNPACKED_TILE = 128  # rows or columns of the other operand
TRITON_TILE = 64  # likewise, of products that Triton's autotuner picks for operands which it turns or widens
SUM_BYTES = 4  # of a sum of bytes
BYTE_BITS = 8
_UNIT_BYTES = {"i4": 0.5, "f4": 0.5}  # of a packed operand, by the type that a unit takes


def gemm(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A matrix product with everything XLA launches for it."""
    shape = kernel.geometry
    rate = matrix_rate(kernel, machine.device)
    if not isinstance(shape, Gemm):
        return _unknown(kernel, rate, machine)
    if sums_products(kernel, shape):
        return multiply_and_reduce(kernel, shape, machine)
    if shape.groups == 1 and is_elemental(shape):
        return looped(elemental_demand(kernel, shape, machine), machine)
    shape = as_stored(kernel, shape)
    product = _tiled(kernel, shape, rate, machine)
    work = packed_time(product, machine)
    if is_tiny(shape):
        work = min(work, tiny(kernel, shape, machine), key=lambda each: each.time)
    if element_bytes(shape.lhs_dtype) <= 1 and (not shape.rhs_contracting_minor or not shape.lhs_contracting_minor):
        work = _byte_product(product, shape, machine)
    work = with_unpacking(work, product, shape, rate, machine)
    return replace(work, matrix_joules=matrix_joules(kernel.matrix_flops, rate, machine.device))


def sums_products(kernel: Kernel, shape: Gemm) -> bool:
    """Whether a kernel is a product with a vector that is multiplied out and summed (`lower.products.matrix_products.is_summed`).

    What the compiler gave tiles is a product whatever its size: XLA splits long sums of a vector's products along K into a
    batch of small ones, which it would have summed had they come as such (splitk_rewriter.cc runs behind).
    """
    return is_summed(shape) and not kernel.tile


def as_stored(kernel: Kernel, shape: Gemm) -> Gemm:
    """The product with the types that its integers are read in, where a compiler's fusion widens them on the way in."""
    if len(kernel.stored_bits) != 2 or min(kernel.stored_bits) >= BYTE_BITS or element_bytes(shape.lhs_dtype) != 1:
        return shape
    kinds = [
        f"i{bits}" if bits < BYTE_BITS else kind
        for bits, kind in zip(kernel.stored_bits, (shape.lhs_dtype, shape.rhs_dtype), strict=True)
    ]
    return replace(shape, lhs_dtype=kinds[0], rhs_dtype=kinds[1])


def gemm_product(kernel: Kernel, machine: GpuMachine) -> TiledProduct | None:
    """The product that `gemm` asks about; None where it has no tiles, or none of this shape."""
    shape = kernel.geometry
    if not isinstance(shape, Gemm) or sums_products(kernel, shape) or (shape.groups == 1 and is_elemental(shape)):
        return None
    return _tiled(kernel, as_stored(kernel, shape), matrix_rate(kernel, machine.device), machine)


def _tiled(kernel: Kernel, shape: Gemm, rate: Rate, machine: GpuMachine) -> TiledProduct:
    """The product as libraries compute it; groups share out its rows."""
    stored = element_bytes(shape.lhs_dtype)
    element = _unit_bytes(shape, rate)
    batch = shape.batch * shape.groups if shape.groups > 1 else shape.batch
    m = shape.m / shape.groups if shape.groups > 1 else shape.m
    unpacked = kernel.read_bytes * element / stored
    if _has_two_widths(shape):
        left, right = element - stored, element - element_bytes(shape.rhs_dtype)
        unpacked = kernel.read_bytes + batch * shape.k * (m * left + shape.n * right)
    carried, chained = _carried(shape, rate, machine)
    moved = _moved_again(shape, rate, machine)
    return TiledProduct(
        batch=batch,
        m=m,
        n=shape.n,
        k=shape.k,
        # Of few rows the weights are what is loaded: a step's bytes are theirs, as they are stored.
        width=min(element, element_bytes(shape.stored_dtype)) if shape.stored_dtype else element,
        read=kernel.read_bytes * moved,
        written=kernel.written_bytes * moved,
        unpacked=unpacked * moved,
        recency=kernel.recency,
        peak=rate.flops * _aligned(_filled(shape, element), rate, machine) * _cut_share(kernel, shape, machine),
        carried=carried,
        chained=chained,
    )


def _has_two_widths(shape: Gemm | Convolution) -> bool:
    """Whether integers of two widths are multiplied: the product widens the narrower (`lower/products/narrow_weights.py`)."""
    left, right = element_bytes(shape.lhs_dtype), element_bytes(shape.rhs_dtype)
    return left != right and max(left, right) <= 1


def _unit_bytes(shape: Gemm | Convolution, rate: Rate) -> float:
    """Bytes of an operand's element as the unit takes it: unpacked next to units that take no fewer bits."""
    return unit_bytes(wider_bytes(shape), rate)


def wider_bytes(shape: Gemm | Convolution) -> float:
    """Bytes of an element that is multiplied: the wider operand's where integers of two widths are."""
    element = element_bytes(shape.lhs_dtype)
    return max(element, element_bytes(shape.rhs_dtype)) if _has_two_widths(shape) else element


def unit_bytes(element: float, rate: Rate) -> float:
    """Bytes that a unit takes an element of so many in: a unit for wider types takes packed ones no narrower than bytes."""
    return max(element, _UNIT_BYTES.get(rate.type, 1.0)) if element < 1 else element


def _filled(shape: Gemm, element: float) -> Gemm:
    """A product of packed integers as one of what the unit takes: rows that pass through registers are aligned by that."""
    types = [
        f"i{int(element * 8)}" if element_bytes(dtype) < min(element, 1.0) else dtype
        for dtype in (shape.lhs_dtype, shape.rhs_dtype)
    ]
    return (
        shape if types == [shape.lhs_dtype, shape.rhs_dtype] else replace(shape, lhs_dtype=types[0], rhs_dtype=types[1])
    )


def with_unpacking(work: GpuWork, product: TiledProduct, shape: Gemm, rate: Rate, machine: GpuMachine) -> GpuWork:
    """The product with what it takes to widen operands that are narrower than its unit takes them.

    XLA's Triton products widen each tile on its way, `t + c K (M ceil(N / 64) + N ceil(M / 64)) / I`; or a loop of its own
    widens them first. XLA's autotuner takes what is faster.
    """
    p, unit = machine.parameters, _unit_bytes(shape, rate)
    narrow = [each for each in _sides(product, shape) if element_bytes(each[0]) < min(unit, 1.0)]
    if not narrow:
        return work
    issued = p.unpacking_instructions * _met_elements(narrow, TRITON_TILE)
    inside = _with_issued(work, "widening elements", issued, machine)
    first = work
    for dtype, elements, _ in narrow:
        first = loop(elements, elements * element_bytes(dtype), elements * unit, 0.0, machine).then(first)
    return min(inside, first, key=lambda each: each.time)


def with_widened_tiles(
    work: GpuWork, product: TiledProduct, shape: Convolution, rate: Rate, machine: GpuMachine
) -> GpuWork:
    """A convolution with the instructions that widen its packed operands, issued beside the units for matrices.

    `t = max(t, launch + i / I)`, `i = 9/8 K (M ceil(N / 128) + N ceil(M / 128))` of packed operands, as in CUTLASS.
    """
    unit = _unit_bytes(shape, rate)
    narrow = [each for each in _sides(product, shape) if element_bytes(each[0]) < min(unit, 1.0)]
    if not narrow:
        return work
    issued = UNPACKING * _met_elements(narrow, UNPACKED_TILE)
    seconds = issued / machine.instruction_rate
    return replace(
        work,
        time=larger(work.time, machine.launch + seconds),
        formula=f"max({work.formula}; launch + issue)",
        terms=(*work.terms, *machine.named(*machine.issuing(issued, seconds))),
    )


def _sides(product: TiledProduct, shape: Gemm | Convolution) -> tuple[tuple[str, float, float], ...]:
    """(type, elements, rows or columns of the other operand) of both operands."""
    each = product.batch * product.k
    return (shape.lhs_dtype, each * product.m, product.n), (shape.rhs_dtype, each * product.n, product.m)


def _met_elements(sides: Sequence[tuple[str, float, float]], tile: int) -> float:
    """Elements of operands, each as often as it is in a tile: with every so many rows or columns of the other one."""
    return sum(elements * math.ceil(other / tile) for _, elements, other in sides)


def _with_issued(work: GpuWork, what: str, issued: float, machine: GpuMachine) -> GpuWork:
    """The product, and instructions on its tiles that the units for matrices wait for."""
    seconds = issued / machine.instruction_rate
    terms = machine.named((f"instructions for {what}", "i", issued, ""), (what, "issue = i/I", seconds, "s"))
    beside = GpuWork(time=seconds, compute=seconds, instructions=issued, fixed=0.0, formula="issue", terms=terms)
    return replace(work.then(beside), formula=f"{work.formula} + issue")


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


def _moved_again(shape: Gemm, rate: Rate, machine: GpuMachine) -> float:
    """Times that a tiled product moves its bytes: rows that are no multiple of 16 bytes begin and end within sectors.

    Tiles take 64 to 256 bytes of such a row at a time, and share the sectors at both ends with their neighbours; Triton loads
    them in parts of 2 to 8 bytes. Heads of 196, 197 and 1,500 numbers (attention of ViTs and Whisper on an H200) take 1.4 to
    2.5 times as long as their bytes; long products hide it behind their arithmetic. How much is set by hand, and no more.
    """
    odd = shape.padded and not (shape.reads_aligned and shape.writes_aligned)
    tiled = rate.on_tensor_cores and min(shape.m, shape.n) >= TILED_SIDE and element_bytes(shape.lhs_dtype) <= 2
    return machine.parameters.misaligned_moved if odd and tiled else 1.0


def _cut_share(kernel: Kernel, shape: Gemm, machine: GpuMachine) -> float:
    """The share of the rate that Triton leaves a product whose operands it computes on (`lower/products/relu_operands.py`).

    They pass through registers on their way to the tensor cores, and cuBLAS's pipelines are not there.
    """
    return machine.parameters.cut_share if computes_operands(kernel, shape) else 1.0


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


def packed_time(product: TiledProduct, machine: GpuMachine) -> GpuWork:
    """The product's time; packed operands are no worse than those that fill the unit's type.

    The tile that the model prefers for fewer bytes may be another one, and a little slower.
    """
    work = product_time(product, machine)
    if product.unpacked <= product.read:
        return work
    return min(work, product_time(product.as_unpacked(), machine), key=lambda each: each.time)


def _byte_product(product: TiledProduct, shape: Gemm, machine: GpuMachine) -> GpuWork:
    """1-byte operands must be K-major for the tensor cores: transposed first, or turned in registers, tile by tile."""
    moved, turned = GpuWork(time=0.0), across(product, shape)
    for _, elements, _ in turned:
        moved = moved.then(_transposed(elements, product.width, machine))
    return min(
        turned_in_tiles(packed_time(product, machine), product, turned, machine),
        moved.then(packed_time(product, machine)),
        key=lambda work: work.time,
    )


def across(product: TiledProduct, shape: Gemm) -> list[tuple[str, float, float]]:
    """Those of a product's operands that do not lie along K, as `_sides` has them."""
    along = shape.lhs_contracting_minor, shape.rhs_contracting_minor
    return [side for side, lies in zip(_sides(product, shape), along, strict=True) if not lies]


def turned_in_tiles(
    work: GpuWork, product: TiledProduct, turned: Sequence[tuple[str, float, float]], machine: GpuMachine
) -> GpuWork:
    """Triton's product, which puts the bytes of each tile along K in registers: `t + c K N ceil(M / 64) / I`.

    No instruction loads transposed bytes from shared memory (PTX ISA, `ldmatrix .trans`: 16 bits). Where tiles leave half of the
    SMs idle, K is split and a second kernel adds the parts up.
    """
    issued = machine.parameters.byte_turning_instructions * _met_elements(turned, TRITON_TILE)
    found = _with_issued(work, "turning bytes", issued, machine)
    tiles = product.batch * math.ceil(product.m / TRITON_TILE) * math.ceil(product.n / UNPACKED_TILE)
    parts = machine.sms // tiles
    if parts < 2:
        return found
    results = product.batch * product.m * product.n
    return found.then(loop(results, results * SUM_BYTES * parts, results * SUM_BYTES, results * parts, machine))


def _transposed(elements: float, width: float, machine: GpuMachine) -> GpuWork:
    """A transpose of elements of at most a byte: as they are packed, or unpacked on the way where that takes less."""
    ways = [transpose(elements, unpacked, machine, looped=True) for unpacked in {width, 0.5, 1.0} if unpacked >= width]
    return min(ways, key=lambda work: work.time)


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
