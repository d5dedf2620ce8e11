"""Products and convolutions: passes of a systolic array with padding, loading of weights, results, and what is fused in.

A tile of one operand, `rows x columns`, is held in an array while rows of the other stream through it, one a clock:

    cycles = count * ceil(K / rows) * ceil(held / columns) * max(streamed / arrays, 2 rows width / L)

where `streamed` rows are filled up to whole registers of `sublanes`, and a tile's weights, of two bytes each, are brought in at
`L` bytes a cycle: `width` columns of them, those held filled up to whole lanes, at most the array's. The compiler holds whichever
operand makes this less. Taps of a convolution lie along K (`estimate.products`); a filter's gradient is a product whose K is
batch and space.
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.explanation import Term
from meshcast.estimate.products import ArrayProduct, packed_operands, product_of
from meshcast.estimate.rates import matrix_rate
from meshcast.estimate.tpu.blocks import read_again
from meshcast.estimate.tpu.machine import TimedWork, TpuMachine
from meshcast.estimate.tpu.vector import loop, windows
from meshcast.lower import HALOED, Kernel, wanted_image
from meshcast.workload import Convolution, Gemm, element_bytes

JOINING_OPS = 3  # of one element of an image in pieces: is it its own or its neighbour's, choose, the larger of both
WEIGHT_BYTES = 2  # of one weight in an array: bf16, also where an operand is f32


def array_cycles(product: ArrayProduct, machine: TpuMachine) -> float:
    """Cycles of all arrays together on bf16 operands, the better operand held."""
    cores = machine.cores
    deep = product.count * math.ceil(product.k / cores.array_rows)
    loaded = machine.parameters.weight_bytes * machine.device.cores

    def streaming(streamed: int, held: int) -> float:
        rows = math.ceil(streamed / cores.sublanes) * cores.sublanes
        width = min(cores.array_columns, math.ceil(held / cores.lanes) * cores.lanes)
        load = cores.array_rows * width * WEIGHT_BYTES / loaded
        return deep * math.ceil(held / cores.array_columns) * max(rows / cores.arrays, load)

    return min(streaming(product.m, product.n), streaming(product.n, product.m))


def product(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """A product or convolution with what is fused into it."""
    geometry, p = kernel.geometry, machine.parameters
    assert isinstance(geometry, Gemm | Convolution)
    if isinstance(geometry, Convolution) and geometry.feature_groups > 1 and _is_depthwise(geometry):
        return _depthwise(kernel, geometry, machine)
    sides = product_of(geometry)
    if sides is None:  # nothing is multiplied: zeros are written
        return loop(kernel, machine)
    faster = matrix_rate(kernel, machine.device).flops / machine.device.matrix_peak("bf16")
    passes = array_cycles(sides, machine) / faster / machine.device.clock_hz
    # Not f32, nor summed up before it is written: two bits a result are the fewest there are.
    narrow = sides.results / 4 <= kernel.written_bytes < 3 * sides.results
    packing = (p.narrow_cycles if machine.has_bf16_vectors else p.widening_cycles) if narrow else 0.0
    taken = sides.results * _padding(geometry, machine)
    packed = machine.converting(geometry.out_dtype, 0.0, taken) or machine.vectors(packing, taken)
    results = machine.vectors(p.result_cycles, taken) + packed
    widened, saved = _widened(kernel, sides)
    ops = machine.vectors(p.fused_cycles / machine.cores.vector_alus, max(0.0, kernel.vector_flops - widened))
    unpacking = machine.vectors(p.fused_cycles / machine.cores.vector_alus, widened)
    # Results are taken out while operands of the next block are widened, in other slots of an instruction.
    vector = max(results + max(ops, machine.functions(kernel)), unpacking)
    if isinstance(geometry, Convolution) and geometry.in_channels < machine.cores.sublanes:
        windows_in_lanes = geometry.batch >= machine.cores.lanes
        vector += machine.vectors(p.pack_cycles / (2 if windows_in_lanes else 1), sides.m * sides.k)
    traffic = machine.traffic(kernel)
    again = read_again(geometry, sides, traffic, machine) if isinstance(geometry, Gemm) else 0.0
    # Windows are cut along elements, and those of less than a byte as finely as bytes are: fewer bits leave no less to overlap.
    finely = p.window_bytes * machine.device.cores * min(1.0, element_bytes(geometry.lhs_dtype))
    steps = max(1.0, (traffic.all + saved) / finely)
    # Blocks of f16 are turned whenever they are taken to the arrays, which wait for it.
    turned = machine.converting(geometry.lhs_dtype, sides.left * max(1.0, sides.n / p.half_side), 0.0)
    turned += machine.converting(geometry.rhs_dtype, sides.right * max(1.0, sides.m / p.half_side), 0.0)
    joined = _joined_elements(kernel, geometry, machine)
    vector += machine.vectors(JOINING_OPS * p.fused_cycles / machine.cores.vector_alus, joined)
    vector += machine.converting(geometry.lhs_dtype, joined, joined)
    arrays = passes * (1 + p.array_loss) + p.fill_cycles / machine.device.clock_hz + turned
    traffic = replace(traffic, hbm_read=traffic.hbm_read + again)
    engines = (
        Term("systolic arrays", "arrays", arrays, "s"),
        Term("results and what is fused in", "vector", vector, "s"),
    )
    terms = (Term("passes of full arrays", "passes", passes, "s"), Term("results taken out", "results", results, "s"))
    return machine.work(traffic, engines, steps, terms, turns=True)


def _widened(kernel: Kernel, sides: ArrayProduct) -> tuple[float, float]:
    """Of integers that a product widens to its type: how many there are, and the bytes that they are shorter by."""
    if not kernel.stored_bits:
        return 0.0, 0.0
    bits, narrow = element_bytes(kernel.dtype) * 8, packed_operands(kernel)
    # Results of fewer bits than the product's type are part of the windows, too; those that are summed up are no such.
    packed = sides.results / 4 <= kernel.written_bytes < sides.results * bits / 8 <= sides.results
    written = sides.results * bits / 8 - kernel.written_bytes if packed else 0.0
    return sum(elements for elements, _ in narrow), sum(elements * fewer / 8 for elements, fewer in narrow) + written


def _padding(geometry: Gemm | Convolution, machine: TpuMachine) -> float:
    """Lanes over elements of a product's results: a convolution's channels fill them, or else its batch."""
    if isinstance(geometry, Gemm):
        return 1.0
    lanes = machine.cores.lanes
    return min(math.ceil(side / lanes) * lanes / side for side in (geometry.out_channels, geometry.batch))


def _joined_elements(kernel: Kernel, geometry: Gemm | Convolution, machine: TpuMachine) -> float:
    """Elements of whole tiles of images that are pieces of others; a piece gets its neighbour's edge on the way to the arrays."""
    if not isinstance(geometry, Convolution) or HALOED not in kernel.flags:
        return 0.0
    return float(wanted_image(geometry).tiles * machine.vector_elements)


def _is_depthwise(geometry: Convolution) -> bool:
    return geometry.in_channels == geometry.feature_groups


def _depthwise(kernel: Kernel, geometry: Convolution, machine: TpuMachine) -> TimedWork:
    """One channel a group leaves nothing to sum up in an array: the vector units do it."""
    macs = machine.vectors(machine.parameters.depthwise_cycles, geometry.macs)
    engines = (Term("multiply-adds on vectors", "vector", macs + machine.arithmetic(kernel), "s"),)
    return machine.work(machine.traffic(kernel), engines, windows(kernel, machine))
