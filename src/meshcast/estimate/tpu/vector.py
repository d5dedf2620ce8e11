"""Kernels without a product: loops over elements, reductions, transposes, windows.

`t = t0 + longest + (sum - longest) / n` of the memory's traffic, loading and storing registers, and arithmetic.
"""

from __future__ import annotations

from meshcast.estimate.tpu.machine import Machine, Work
from meshcast.lower.kernel import Kernel, KernelKind


def loop(kernel: Kernel, machine: Machine) -> Work:
    """Any pass over elements; where another dimension becomes the innermost, each vector is shuffled as well."""
    traffic = machine.traffic(kernel)
    engines = [
        ("loading and storing registers", "move", machine.moving(traffic)),
        ("vector ops and functions", "vector", machine.arithmetic(kernel)),
    ]
    if kernel.kind is KernelKind.TRANSPOSE or "turned" in kernel.flags:
        elements = max(kernel.elements, kernel.written_bytes / 4)
        engines.append(
            ("across lanes and sublanes", "shuffle", machine.vectors(machine.parameters.shuffle_cycles, elements))
        )
    return machine.work(traffic, engines)
