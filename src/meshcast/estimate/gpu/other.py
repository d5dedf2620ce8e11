"""What has no model of its own: sliding windows by their elements, transforms and linear algebra by FLOPs and bytes."""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.base import larger
from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.elementwise import instructions, loop, output_elements
from meshcast.estimate.gpu.elementwise import transpose as tiled
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.transforms import transform
from meshcast.estimate.rates import matrix_rate
from meshcast.lower import Kernel
from meshcast.workload import Transform, Window, element_bytes


def declared(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A custom call by what it declares: the longer of its products, at a GEMM's share of peak, and its bytes."""
    rate = matrix_rate(kernel, machine.device) if kernel.matrix_flops else None
    products = kernel.matrix_flops / (rate.flops * machine.boost * machine.parameters.tensor_share) if rate else 0.0
    issued = instructions(kernel, machine)
    written = output_elements(kernel)
    # A call that does not say what it writes works on what it moves: its threads share that, as a loop's share their results;
    # how many blocks it starts is not known.
    elements = written or kernel.read_bytes / element_bytes(kernel.dtype)
    moved = loop(elements, kernel.read_bytes, kernel.written_bytes, issued, machine, bounded=written > 0)
    joules = matrix_joules(kernel.matrix_flops, rate, machine.device) if rate else 0.0
    time, compute = larger(moved.time, machine.launch + products), larger(moved.compute, products)
    terms = machine.named(("products", "mma", products, "s"))
    formula = f"{moved.formula}, at least launch + mma"
    return replace(
        moved, time=time, compute=compute, computing=larger(moved.arithmetic, products), matrix_joules=joules,
        formula=formula, terms=(*moved.terms, *terms),
    )  # fmt: skip


def other(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """Windows, random numbers, FFTs, factorisations."""
    shape = kernel.geometry
    if isinstance(shape, Transform):
        return transform(kernel, shape, machine)
    elements = output_elements(kernel)
    issued = instructions(kernel, machine)
    if isinstance(shape, Window):
        issued = elements * math.prod(shape.window) * machine.parameters.window_instructions
    return loop(elements, kernel.read_bytes, kernel.written_bytes, issued, machine, recency=kernel.recency)


def transpose(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A transpose on its own; of a byte and less it is a loop where rows stay rows, bound by the blocks that it starts."""
    element = element_bytes(kernel.dtype)
    if element <= 1 and "turned" not in kernel.flags:
        elements = kernel.written_bytes / element
        return loop(elements, kernel.read_bytes, kernel.written_bytes, 0.0, machine, recency=kernel.recency)
    looped = "unpacked" in kernel.flags
    return tiled(kernel.written_bytes / element, element, machine, kernel.recency, looped=looped)
