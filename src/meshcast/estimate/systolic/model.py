"""Layers on a systolic array: cycles, stalls and utilisation, for thousands of layers at once.

Layers that fit their scratchpads are answered in closed form, all together; the others are walked one by one
(`scratchpads`), equal ones once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshcast.base import UnsupportedError, UsageError
from meshcast.estimate.systolic import cycles
from meshcast.estimate.systolic.array import SystolicArray
from meshcast.estimate.systolic.layer import Integers, Layer, product_shapes
from meshcast.estimate.systolic.ring import Ring
from meshcast.estimate.systolic.scratchpads import layer_stalls

MOST_WORK = 2.0**60  # multiply-adds of a layer, so that sums of cycles and words stay within 64 bits
MOST_WALKED_CYCLES = 10**9  # some minutes of walking
MOST_LISTED_WORDS = 1 << 26  # of windows that overlap: 2 GB of addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """What an array does for one layer; shares are of 1.

    Attributes:
        compute_cycles: Cycles if data were always there; `total_cycles` has the stalls too.
        cycles_with_prefetch: From the first word fetched to the last one written back; None where the bandwidth is only
            estimated (SCALE-Sim's mode CALC).
        utilisation: Multiply-adds over cells and all cycles.
        mapping_efficiency: Cells in use, averaged over folds.
        compute_utilisation: Multiply-adds over cells and cycles of a fold, averaged over folds.
    """

    name: str
    compute_cycles: int
    stall_cycles: int
    total_cycles: int
    cycles_with_prefetch: int | None
    utilisation: float
    mapping_efficiency: float
    compute_utilisation: float


def simulate(layers: Sequence[Layer], array: SystolicArray) -> list[LayerResult]:
    """Every layer on the array, as SCALE-Sim 3.0.0 reports it."""
    if not layers:
        return []
    _check_sizes(layers)
    m, n, k = product_shapes(layers)
    compute = cycles.compute_cycles(m, n, k, array)
    stalls, total, prefetch = np.zeros_like(compute), compute.copy(), _prefetch(layers, m, n, k, array)
    walked: dict[Layer, tuple[int, int, int]] = {}
    for index in np.flatnonzero(~_fits(layers, m, n, k, array)).tolist():
        layer = replace(layers[index], name="")
        if layer not in walked:
            _check_walk(layers[index], int(compute[index]))
            use = layer_stalls(layer, array)
            walked[layer] = (use.stall_cycles, use.total_cycles, use.with_prefetch)
        stalls[index], total[index], prefetch[index] = walked[layer]
    columns = (
        compute, stalls, total, prefetch, cycles.utilisation(m, n, k, array, total),
        cycles.mapping_efficiency(m, n, k, array), cycles.compute_utilisation(m, n, k, array),
    )  # fmt: skip
    return [
        LayerResult(
            name=layer.name, compute_cycles=row[0], stall_cycles=row[1], total_cycles=row[2],
            cycles_with_prefetch=None if array.estimated_bandwidth else row[3], utilisation=row[4],
            mapping_efficiency=row[5], compute_utilisation=row[6],
        )
        for layer, row in zip(layers, zip(*(column.tolist() for column in columns), strict=True), strict=True)
    ]  # fmt: skip


def _check_sizes(layers: Sequence[Layer]) -> None:
    """Refuses layers, in whole numbers of any size, before they become 64-bit ones."""
    for layer in layers:
        work, words = layer.m * layer.n * layer.k, layer.map_elements
        if max(work, words) > MOST_WORK:
            raise UsageError(
                f"the layer has {work:,} multiply-adds over a map of {words:,} words, more than cycles can be counted for "
                f"({MOST_WORK:.0e})",
                where=layer.name or None,
                fix="give a smaller layer, or split it",
            )


def _check_walk(layer: Layer, compute: int) -> None:
    words = layer.m * layer.k if layer.overlaps else 0
    if words > MOST_LISTED_WORDS:
        raise UnsupportedError(
            f"the windows of a layer have {words:,} words, whose addresses would be listed: at most {MOST_LISTED_WORDS:,}",
            where=layer.name or None,
            fix="leave the bandwidth out for its compute cycles, enlarge the scratchpads, or split the layer",
        )
    if compute > MOST_WALKED_CYCLES:
        raise UnsupportedError(
            f"stalls of a layer of {compute:,} cycles would be walked for minutes: at most {MOST_WALKED_CYCLES:,}",
            where=layer.name or None,
            fix="leave the bandwidth out for its compute cycles, enlarge the scratchpads, or split the layer",
        )


def _fits(
    layers: Sequence[Layer], m: Integers, n: Integers, k: Integers, array: SystolicArray
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether each layer's operands lie in the halves in use, and its outputs, partial sums too, in the other half."""
    row_folds = 1 if array.dataflow == "os" else cycles.folds(m, n, k, array).row_folds
    drains = m * n * row_folds > array.ofmap.spare
    if array.estimated_bandwidth:  # memory takes a word of every column a cycle: nothing waits
        return np.ones(len(layers), dtype=np.bool_)
    window = np.fromiter((layer.window_elements for layer in layers), np.int64, len(layers))
    room = np.asarray(~drains)
    for buffer, words in ((array.ifmap, window), (array.filter, k * n)):
        whole = Ring.of(buffer, 0)
        room &= words // whole.group + 1 <= -(-buffer.active // whole.group)
    return room


def _prefetch(layers: Sequence[Layer], m: Integers, n: Integers, k: Integers, array: SystolicArray) -> Integers:
    """Cycles from the first word fetched to the last one written, of layers that fit their scratchpads."""
    lie = cycles.folds(m, n, k, array)
    rows, columns = lie.row_folds * array.rows, lie.column_folds * array.columns
    padded = {"ws": (rows * m, columns * k), "is": (columns * k, rows * n), "os": (rows * k, columns * k)}
    first = np.zeros_like(m)
    for buffer, words in zip((array.ifmap, array.filter), padded[array.dataflow], strict=True):
        lines = np.minimum(-(-buffer.active // buffer.bandwidth), -(-words // buffer.bandwidth))
        first = np.maximum(first, lines)
    outputs = m * n * (1 if array.dataflow == "os" else lie.row_folds)
    written = -(-outputs // array.drain_bandwidth)
    return cycles.compute_cycles(m, n, k, array) + written - 1 + first
