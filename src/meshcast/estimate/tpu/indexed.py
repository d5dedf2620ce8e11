"""Gathers, scatters and sorts: work that goes slice by slice or stage by stage."""

from __future__ import annotations

import math

from meshcast.estimate.explanation import Term
from meshcast.estimate.tpu.machine import TimedWork, TpuMachine
from meshcast.estimate.tpu.vector import passing, windows
from meshcast.lower import Kernel
from meshcast.workload import Indexed, SortGeometry


def picked_slices(kernel: Kernel) -> int:
    """Slices that indices pick one by one; 0 where a kernel picks none."""
    indexed = kernel.geometry if isinstance(kernel.geometry, Indexed) else kernel.picked
    return indexed.count if indexed is not None else 0


def gather(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """Slices are copied one after the other: each has its address to compute and its copy to start."""
    return _indexed(kernel, machine, machine.parameters.gather_cycles)


def scatter(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """Slices are updated in turn, as two indices may be equal."""
    return _indexed(kernel, machine, machine.parameters.scatter_cycles)


def _indexed(kernel: Kernel, machine: TpuMachine, cycles: float) -> TimedWork:
    traffic = machine.traffic(kernel)
    slices = picked_slices(kernel) * cycles / machine.vector_rate
    engines = passing(kernel, traffic, machine)
    return machine.work(
        traffic, (Term("slices, one by one", "slices", slices, "s"), *engines), windows(kernel, machine),
        computing=machine.arithmetic(kernel),
    )  # fmt: skip


def sort(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """A bitonic network: `log2(n) (log2(n) + 1) / 2` stages over all elements; for top-k those of k, then of n."""
    geometry, traffic = kernel.geometry, machine.traffic(kernel)
    assert isinstance(geometry, SortGeometry)
    depth = math.ceil(math.log2(max(2, geometry.length)))
    kept = math.ceil(math.log2(max(2, geometry.top))) if geometry.top else depth
    stages = kept * (kept + 1) / 2 + max(0, depth - kept)
    elements = float(geometry.length * geometry.batch * geometry.operands)
    compared = machine.vectors(machine.parameters.sort_cycles * stages, elements)
    engines = passing(kernel, traffic, machine)
    return machine.work(
        traffic, (Term("compare-exchange stages", "sort", compared, "s"), *engines), 1.0,
        computing=max(compared, machine.arithmetic(kernel)),
    )  # fmt: skip
