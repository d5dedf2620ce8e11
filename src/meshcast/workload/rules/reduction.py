"""Reductions of every shape: reduce, sliding windows, scans, map, and pooling's backward pass.

The body's work is counted per application, so an argmax costs its nine ops per step and not one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from meshcast.workload.graph import Cost, OpKind, Reduction
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import integer, integers, text
from meshcast.workload.rules.costs import streamed
from meshcast.workload.rules.regions import block_elements, region_work
from meshcast.workload.shapes import Window


def _reduce(reading: OpReading) -> Cost:
    """(input elements - output elements) applications of the body, all operands reduced together."""
    operand, result = reading.operands[0], reading.results[0]
    work = region_work(reading)
    steps = max(0, operand.elements - result.elements)  # nothing is reduced to something: the initial values
    return streamed(
        reading,
        OpKind.REDUCE,
        vector_flops=work.flops * steps,
        transcendentals=work.transcendentals * steps,
        geometry=_as_laid_out(reading.op, Reduction(shape=operand.shape, dims=integers(reading.op, "dimensions"))),
    )


def _as_laid_out(op: Any, geometry: Reduction) -> Reduction:
    """The same reduction with its dimensions in the order they lie in memory, where a compiler chose another one."""
    found = re.match(r"\{([\d,]+)\}", text(op, "meshcast.layouts"))  # innermost first, noted by programs.hlo_text
    if found is None:
        return geometry
    order = [int(dim) for dim in reversed(found[1].split(","))]
    return Reduction(
        shape=tuple(geometry.shape[dim] for dim in order),
        dims=tuple(place for place, dim in enumerate(order) if dim in geometry.dims),
    )


def _reduce_window(reading: OpReading) -> Cost:
    """(window - 1) applications per output element; padded positions count, as they do in XLA.

    A window as long as its dimension that slides in from one side is JAX 0.10's cumsum: backends run it as a scan. Where
    every window covers the whole dimension, the TPU compiler means a reduction whose result is spread out again.
    """
    operand, result = reading.operands[0], reading.results[0]
    geometry = _window(reading)
    work = region_work(reading)
    scanned = _scanned_dimension(reading, geometry)
    if scanned is not None:
        return streamed(
            reading,
            OpKind.SCAN,
            dtype=operand.dtype,
            vector_flops=work.flops * operand.elements,
            transcendentals=work.transcendentals * operand.elements,
            geometry=Reduction(shape=operand.shape, dims=(scanned,)),
        )
    covered = _covered_dimensions(reading, geometry)
    steps = result.elements * (math.prod(w for dim, w in enumerate(geometry.window) if dim not in covered) - 1)
    steps += operand.elements if covered else 0
    return streamed(
        reading,
        OpKind.WINDOW,
        dtype=operand.dtype,
        vector_flops=work.flops * steps,
        transcendentals=work.transcendentals * steps,
        geometry=geometry,
    )


def _select_and_scatter(reading: OpReading) -> Cost:
    """Per source element: (window - 1) selections to find its place, then one scatter step."""
    source = reading.operands[1]
    geometry = _window(reading)
    select, scatter = region_work(reading, 0), region_work(reading, 1)
    selections = source.elements * (math.prod(geometry.window) - 1)
    return streamed(
        reading,
        OpKind.WINDOW,
        vector_flops=select.flops * selections + scatter.flops * source.elements,
        transcendentals=select.transcendentals * selections + scatter.transcendentals * source.elements,
        geometry=geometry,
    )


def _window(reading: OpReading) -> Window:
    """The window over operand 0."""
    shape = reading.operands[0].shape
    window = integers(reading.op, "window_dimensions", (1,) * len(shape))
    return Window(shape=shape, window=window, strides=integers(reading.op, "window_strides", (1,) * len(shape)))


def _scanned_dimension(reading: OpReading, geometry: Window) -> int | None:
    """The dimension whose running reduction this window computes, or None for a real window."""
    wide = [dim for dim, size in enumerate(geometry.window) if size > 1]
    if len(wide) != 1 or any(stride != 1 for stride in geometry.strides) or "padding" not in reading.op.attributes:
        return None
    (dim,) = wide
    whole = reading.op.operands[0].type.shape[dim]  # the window is written for the unsharded dimension
    padding = np.asarray(reading.op.attributes["padding"]).reshape(-1, 2)
    one_sided = sorted(int(side) for side in padding[dim]) == [0, whole - 1]
    return dim if geometry.window[dim] == whole and one_sided else None


def _covered_dimensions(reading: OpReading, geometry: Window) -> set[int]:
    """Dimensions that each window covers from end to end, wherever it stands: `2n - 1` wide over `n` elements."""
    if "padding" not in reading.op.attributes or any(stride != 1 for stride in geometry.strides):
        return set()
    padding = np.asarray(reading.op.attributes["padding"]).reshape(-1, 2)
    sizes = zip(reading.op.operands[0].type.shape, geometry.window, padding, strict=True)
    return {d for d, (n, width, sides) in enumerate(sizes) if n > 1 and width == 2 * n - 1 and min(sides) == n - 1}


def _scan(reading: OpReading) -> Cost:
    """One application of the body per element; a work-efficient parallel scan does up to twice as many.

    The block may be written on scalars or on slices of the whole (unsharded) operand: its work is taken per element.
    """
    operand = reading.operands[0]
    work = region_work(reading)
    steps = operand.elements / max(1, block_elements(reading))
    return streamed(
        reading,
        OpKind.SCAN,
        vector_flops=work.flops * steps,
        transcendentals=work.transcendentals * steps,
        geometry=Reduction(shape=operand.shape, dims=(integer(reading.op, "dimension"),)),
    )


def _map(reading: OpReading) -> Cost:
    """The body once per element."""
    result = reading.results[0]
    work = region_work(reading)
    return streamed(
        reading,
        OpKind.ELEMENTWISE,
        dtype=result.dtype,
        vector_flops=work.flops * result.elements,
        transcendentals=work.transcendentals * result.elements,
    )


RULES: Mapping[str, Rule] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.map": _map,
    "chlo.scan": _scan,
}
