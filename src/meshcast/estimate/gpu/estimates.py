"""Estimates of GPU kernels from the work that a model found: the speed of light as a bound, energy, power and interval."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from meshcast.base import raw, rows_of
from meshcast.estimate.estimator import Estimates, Origin
from meshcast.estimate.gpu.clocks import power_draw
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.roofline import light_bounds
from meshcast.lower import Kernel

# Inside a CUDA graph a kernel begins as the one before it ends: a tenth of what a launch latency leaves beside the least kernel,
# 0.03 us on the H200. Three profiles of programs with graphs have medians of -0.19, -0.13 and 0.03 us (the `-graphs` files of
# `data/measured/h200-profiles`), and an LSTM's step takes 0.02 us a kernel longer than its kernels do one by one.
GRAPH_GAP = 0.1
# A kernel that lasts longer is slower than predicted by less: latencies and small tiles no longer count (90 % of 870 kernels of
# models and public libraries' programs on an H200).
LONG_S, LONG_HIGH = 50e-6, 1.4


def estimates_of(
    kernels: Sequence[Kernel], works: Sequence[GpuWork], machine: GpuMachine, intervals: Sequence[tuple[float, float]],
    origins: tuple[Origin, ...],
) -> Estimates:  # fmt: skip
    """Times, energies and intervals of kernels at the full clock; of several points with a place for each (`machine.points`).

    Args:
        kernels: What runs.
        works: What each of them takes.
        machine: The GPU.
        intervals: (low, high) factors around each time.
        origins: Where the times come from.
    """
    column = functools.partial(rows_of, points=machine.points)
    arithmetic, bytes_moved = light_bounds(kernels, machine.device, machine.points)
    # Never faster than light; peaks are quoted below the highest clock.
    light = np.maximum(arithmetic / raw(machine.boost), bytes_moved)
    time = np.maximum(column(w.time for w in works), light)
    draw = power_draw(works, time, machine)
    cores = np.minimum(column(w.compute for w in works), time)
    memory = np.minimum(column(w.memory for w in works), time)
    highest = np.where(time > LONG_S, LONG_HIGH, np.inf)
    return Estimates(
        time=time,
        low=np.maximum(time * column(min(1.0, low) for low, _ in intervals), light),
        high=time * np.minimum(column(max(1.0, high) for _, high in intervals), highest),
        compute_time=np.minimum(column(w.arithmetic for w in works), time),
        core_time=cores,
        memory_time=memory,
        overhead=np.minimum(column(w.overhead for w in works), time - np.maximum(cores, memory)),
        energy=draw.joules(1.0),
        origin=origins,
        gap=GRAPH_GAP * machine.gap,
        draw=draw,
    )


def is_empty(kernel: Kernel) -> bool:
    """Whether a kernel has nothing to move or compute: its tensors have no elements."""
    return not (kernel.read_bytes or kernel.written_bytes or kernel.matrix_flops or kernel.vector_flops)
