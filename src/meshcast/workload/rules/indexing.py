"""Slices, updates, gathers and scatters: they touch what they return or replace, never the whole table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jaxlib.mlir.dialects import stablehlo

from meshcast.workload.graph import Cost, Indexed, OpKind, Tensor
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import flag, integer, integers, text
from meshcast.workload.rules.costs import takes_whole, total_bytes, view
from meshcast.workload.rules.regions import region_work


def _slice(reading: OpReading) -> Cost:
    """As many bytes of operand 0 as the result has, and the start indices where they are values."""
    operand, *indices = reading.operands
    result = reading.results[0]
    if operand.shape == result.shape and takes_whole(reading.op):
        return view(reading)  # all of it, and not just as much as a shard has
    strides = integers(reading.op, "strides")
    return Cost(
        kind=OpKind.SLICE,
        dtype=result.dtype,
        operand_bytes=(result.bytes, *(index.bytes for index in indices)),
        written_bytes=result.bytes,
        strides=strides if any(step > 1 for step in strides) else (),
        starts=integers(reading.op, "start_indices") if not indices else (),
    )


def _dynamic_update_slice(reading: OpReading) -> Cost:
    """In place: the update is read and written, the rest of operand 0 is not touched."""
    _, update, *indices = reading.operands
    return Cost(
        kind=OpKind.UPDATE,
        dtype=update.dtype,
        operand_bytes=(0, update.bytes, *(index.bytes for index in indices)),
        written_bytes=update.bytes,
    )


def _gather(reading: OpReading) -> Cost:
    """One slice of `slice_sizes` per index vector; a sharded table has at most its own extent to give."""
    table = reading.operands[0]
    sizes = integers(reading.op, "slice_sizes", table.shape)
    slice_shape = tuple(min(size, extent) for size, extent in zip(sizes, table.shape, strict=True))
    if slice_shape == table.shape == reading.results[0].shape and takes_whole(reading.op):
        return view(reading)  # one slice, of all there is
    return replace(_gathered(reading, slice_shape), run=_run(reading, slice_shape))


def _dynamic_gather(reading: OpReading) -> Cost:
    """A gather whose slice sizes are a value: the result's offset dimensions give them."""
    table, result = reading.operands[0], reading.results[0]
    dims = stablehlo.GatherDimensionNumbers(reading.op.attributes["dimension_numbers"])
    offsets = iter(result.shape[dim] for dim in dims.offset_dims)
    single = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    return _gathered(reading, tuple(1 if dim in single else next(offsets) for dim in range(len(table.shape))))


def _run(reading: OpReading, slice_shape: tuple[int, ...]) -> int:
    """Elements of the table that follow each other in the result's memory, too.

    From the result's innermost dimension outwards: as far as they are a slice's own and follow each other in the table. Slices
    that are written across are runs of one. Of single numbers nobody knows whether those beside them are picked next
    (coordinates of a warped image) or not: 0.
    """
    table, result = reading.operands[0].shape, reading.results[0].shape
    if math.prod(slice_shape) == 1:
        return 0
    dims = stablehlo.GatherDimensionNumbers(reading.op.attributes["dimension_numbers"])
    single = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    kept = [dim for dim in range(len(table)) if dim not in single]
    of_table = dict(zip(dims.offset_dims, kept, strict=True))
    run = 1
    for dim in _innermost_first(reading, len(result)):
        place = of_table.get(dim)
        if result[dim] == 1:
            continue
        if place is None or math.prod(table[place + 1 :]) != run:
            break
        run *= slice_shape[place]
        if slice_shape[place] != table[place]:
            break
    return run


def _innermost_first(reading: OpReading, rank: int) -> Sequence[int]:
    """The result's dimensions as they lie in memory: by the layout that a compiler told, else as they are written."""
    told = text(reading.op, "meshcast.layouts").rpartition("->")[2].strip("{}")
    order = tuple(int(dim) for dim in told.split(",") if dim.strip().isdigit())
    return order if sorted(order) == list(range(rank)) else range(rank - 1, -1, -1)


def _torch_index_select(reading: OpReading) -> Cost:
    """Whole hyperplanes along `dim`, one per index."""
    table = reading.operands[0]
    dim, batch_dims = integer(reading.op, "dim"), integer(reading.op, "batch_dims")
    single = {dim % len(table.shape), *range(batch_dims)}
    return _gathered(reading, tuple(1 if d in single else size for d, size in enumerate(table.shape)))


def _gathered(reading: OpReading, slice_shape: tuple[int, ...]) -> Cost:
    """Reads the slices and the indices, writes the result; `count` follows from the local result."""
    table, *indices = reading.operands
    result = reading.results[0]
    return Cost(
        kind=OpKind.GATHER,
        dtype=result.dtype,
        operand_bytes=(result.bytes, *(index.bytes for index in indices)),
        written_bytes=result.bytes,
        geometry=Indexed(
            table=table,
            slice_shape=slice_shape,
            count=result.elements // max(1, math.prod(slice_shape)),
            is_sorted=flag(reading.op, "indices_are_sorted"),
            skew=reading.skew,
        ),
    )


def _scatter(reading: OpReading) -> Cost:
    """Reads updates, indices and the slices they fall on, writes those slices; the region runs per update element."""
    tables = len(reading.results)
    indices, updates = reading.operands[tables], reading.operands[tables + 1 :]
    slice_shape = _update_slice(reading, updates[0])
    work = region_work(reading)
    touched = tuple(update.bytes for update in updates)
    elements = updates[0].elements
    return Cost(
        kind=OpKind.SCATTER,
        dtype=updates[0].dtype,
        vector_flops=work.flops * elements,
        transcendentals=work.transcendentals * elements,
        operand_bytes=(*touched, indices.bytes, *touched),
        written_bytes=total_bytes(updates),
        geometry=Indexed(
            table=reading.operands[0],
            slice_shape=slice_shape,
            count=elements // max(1, math.prod(slice_shape)),
            unique=flag(reading.op, "unique_indices"),
            is_sorted=flag(reading.op, "indices_are_sorted"),
            skew=reading.skew,
            extremum=_keeps_extremum(reading),
        ),
    )


def _keeps_extremum(reading: OpReading) -> bool:
    """Whether the body of a scatter is a maximum or a minimum."""
    first = next(iter(reading.op.regions[0].blocks[0]))
    return first.operation.name in ("stablehlo.maximum", "stablehlo.minimum")


def _update_slice(reading: OpReading, update: Tensor) -> tuple[int, ...]:
    """The window one index vector writes, in the table's own rank."""
    dims = stablehlo.ScatterDimensionNumbers(reading.op.attributes["scatter_dimension_numbers"])
    window = iter(update.shape[dim] for dim in dims.update_window_dims)
    single = {*dims.inserted_window_dims, *dims.input_batching_dims}
    return tuple(1 if dim in single else next(window) for dim in range(len(reading.operands[0].shape)))


RULES: Mapping[str, Rule] = {
    "stablehlo.slice": _slice,
    "stablehlo.dynamic_slice": _slice,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.dynamic_gather": _dynamic_gather,
    "stablehlo.torch_index_select": _torch_index_select,
    "stablehlo.scatter": _scatter,
}
