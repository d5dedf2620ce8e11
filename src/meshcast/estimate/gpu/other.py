"""What has no model of its own: sliding windows by their elements, transforms and linear algebra by FLOPs and bytes."""

from __future__ import annotations

import math

from meshcast.estimate.gpu.elementwise import instructions, loop, output_elements
from meshcast.estimate.gpu.elementwise import transpose as tiled
from meshcast.estimate.gpu.machine import Machine, Work
from meshcast.lower.kernel import Kernel
from meshcast.workload.graph import DTYPE_BITS, Window


def other(kernel: Kernel, machine: Machine) -> Work:
    """Windows, random numbers, FFTs, factorisations, unknown calls."""
    shape = kernel.geometry
    elements = output_elements(kernel)
    issued = instructions(kernel, machine)
    if isinstance(shape, Window):
        issued = elements * math.prod(shape.window) * machine.parameters.window_instructions
    return loop(elements, kernel.read_bytes, kernel.written_bytes, issued, machine)


def transpose(kernel: Kernel, machine: Machine) -> Work:
    """A transpose on its own."""
    element = DTYPE_BITS.get(kernel.dtype, 32) / 8
    return tiled(kernel.written_bytes / element, element, machine)
