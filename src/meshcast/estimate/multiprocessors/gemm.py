"""Products as XLA:GPU runs them, on the simulator: tiles, loops, sums with vectors, and 1-byte operands turned round first."""

from __future__ import annotations

from dataclasses import replace

from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.gemm import (
    across,
    as_stored,
    gemm_product,
    sums_products,
    turned_in_tiles,
    with_unpacking,
)
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.small_products import elemental_demand, is_elemental, summed_product
from meshcast.estimate.gpu.tile_ways import TiledProduct
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.products import TileJob, packed_product
from meshcast.estimate.multiprocessors.reductions import reduction
from meshcast.estimate.multiprocessors.streaming import loop, transposed
from meshcast.estimate.rates import matrix_rate
from meshcast.lower import Kernel
from meshcast.workload import Gemm, element_bytes


def gemm(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A matrix product with everything XLA launches for it."""
    shape = kernel.geometry
    assert isinstance(shape, Gemm)  # see `GpuSimulated.supports`
    if sums_products(kernel, shape):
        multiplied, summed = summed_product(kernel, shape, machine)
        last = reduction(summed, chip, machine)
        return last if multiplied is None else loop(multiplied, chip).then(last)
    if shape.groups == 1 and is_elemental(shape):
        return loop(elemental_demand(kernel, shape, machine), chip)
    shape = as_stored(kernel, shape)
    tiled = gemm_product(kernel, machine)
    assert tiled is not None  # no loop, no sum
    work = (
        _turned(tiled, shape, chip, machine)
        if _is_turned(shape)
        else packed_product(TileJob(product=tiled), chip, machine)
    )
    rate = matrix_rate(kernel, machine.device)
    work = with_unpacking(work, tiled, shape, rate, machine)
    return replace(work, matrix_joules=matrix_joules(kernel.matrix_flops, rate, machine.device))


def _is_turned(shape: Gemm) -> bool:
    """Whether 1-byte operands do not lie along K, as tensor cores want them."""
    along = shape.rhs_contracting_minor and shape.lhs_contracting_minor
    return element_bytes(shape.lhs_dtype) <= 1 and not along


def _turned(tiled: TiledProduct, shape: Gemm, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A product of 1-byte operands: transposed first, or turned in registers, tile by tile."""
    work, turned = GpuWork(time=0.0), across(tiled, shape)
    for _, elements, _ in turned:
        work = work.then(transposed(elements, tiled.width, chip, machine, looped=True))
    straight = packed_product(TileJob(product=tiled), chip, machine)
    return min(work.then(straight), turned_in_tiles(straight, tiled, turned, machine), key=lambda each: each.time)
