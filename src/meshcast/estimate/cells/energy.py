"""Joules of a kernel on arrays of cells, by the part that spends them.

Rows drive all columns of their array, and a column that is read has the bit line of all rows; each read is one conversion.
Behind the columns, the slices of a weight are added at their places, by a tree of `c (s - 1) + s (log2 s - 1/2)` one-bit adders
for s slices read at c bits; sums of several steps are accumulated at `activation + converter + weight` bits. After ZigZag's model
of in-memory computing (Houshmand et al., arXiv 2305.18335; `zigzag/hardware/architecture/imc_array.py`), with what a part
spends from the device's file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from meshcast.estimate.cells.mapping import CellMapping, mapped
from meshcast.estimate.image_batches import working_set
from meshcast.hardware import CellArray, Device
from meshcast.lower import Kernel

PARTS = ("inputs", "cells", "bit lines", "converters", "adders", "periphery", "buffer", "memory")


def array_energy(found: CellMapping, cells: CellArray) -> dict[str, float]:
    """Joules of a product in the array, by part."""
    spent = cells.energy
    width = cells.columns // found.slices  # weights of a row
    adders = cells.converter_bits * (found.slices - 1) + found.slices * (math.log2(found.slices) - 0.5)
    held = found.activation_bits + cells.converter_bits + found.weight_bits if found.steps > 1 else 0
    sums = found.columns_read / found.slices
    added = (max(0.0, adders) if found.slices > 1 else 0.0) * spent.adder + held * (spent.adder + spent.register)
    return {
        "inputs": spent.input * found.rows_driven,
        "cells": spent.cell * found.rows_driven * width * found.slices,
        "bit lines": spent.bit_line * found.columns_read * cells.rows,
        "converters": spent.converter * found.columns_read,
        "adders": added * sums,
        "buffer": spent.buffer_per_byte * found.buffer_bytes,
    }


def energy_by_part(kernel: Kernel, device: Device) -> Mapping[str, float]:
    """Joules of one kernel on a device with arrays of cells, by part (`PARTS`)."""
    assert device.cells is not None  # see `CellsAnalytical.supports`
    parts = dict.fromkeys(PARTS, 0.0)
    found = mapped(kernel, device)
    moved = kernel.read_bytes + kernel.written_bytes
    spent = device.cells.energy
    if found is not None:
        parts |= array_energy(found, device.cells)
        parts["periphery"] = spent.vector * kernel.vector_flops
    else:
        parts["periphery"] = spent.vector * (kernel.vector_flops + kernel.matrix_flops)
        parts["buffer"] = spent.buffer_per_byte * moved
    if working_set(kernel) > device.cache_bytes and device.energy is not None:
        parts["memory"] = (device.energy.memory_per_byte or 0.0) * moved
    return parts
