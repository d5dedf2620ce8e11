"""What drawn random numbers cost on analogue arrays, where noise is physical and drawn by nobody.

A program that adds Gaussian noise to weights, activations or sums stands for such an array; timed as it is written, it draws
the numbers in the units beside the array, and multiplies in floats what the cells would hold. Whether random numbers are that or
part of the computation (dropout, sampling) a program does not say, so that they are timed, and their share is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcast.base import format_time
from meshcast.estimate import matrix_rate
from meshcast.lower import Kernel

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

_ROTATED = {"xor", "shift_left", "shift_right_logical"}  # what counters are scrambled by: Threefry, Philox


def noise_notes(run: Run) -> list[str]:
    """How much of a step on an array of analogue cells draws random numbers or multiplies floats beside it."""
    cells = run.device.cells
    if cells is None or not cells.converter_bits:
        return []
    drawing, drawn_s, floats_s = 0, 0.0, 0.0
    for kernel, count in zip(run.executes.computing, run.executes.counts.tolist(), strict=True):
        seconds = count * run.kernels[kernel].time
        if _draws(kernel):
            drawing, drawn_s = drawing + count, drawn_s + seconds
        elif kernel.matrix_flops and not matrix_rate(kernel, run.device).on_tensor_cores:
            floats_s += seconds
    if not drawing:
        return []
    floats = f", products of floats beside the array {format_time(floats_s)}" if floats_s else ""
    return [
        f"drawing random numbers takes {format_time(drawn_s)} of a step in {drawing:.0f} kernels{floats}: if they stand for the "
        f"noise of {run.device.name}, which is physical and costs nothing, predict the program without it (FQ-Conv networks: "
        "no --set weight_noise, activation_noise, converter_noise)"
    ]


def _draws(kernel: Kernel) -> bool:
    names = {name.rpartition(".")[2] for name in kernel.ops}
    return names >= _ROTATED or any(name.startswith("rng") for name in names)
