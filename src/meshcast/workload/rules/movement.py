"""Ops that move, generate or only rename data: no FLOPs, and bytes only where memory is really touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshcast.workload.graph import DTYPE_BITS, Cost, OpKind
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import constant_float, integer, integers
from meshcast.workload.rules.costs import generated, streamed, takes_whole, total_bytes, view

_VIEWS = (
    "after_all create_token dynamic_reshape get_dimension_size get_tuple_element optimization_barrier partition_id "
    "replica_id reshape set_dimension_size tuple"
)


def _bitcast_convert(reading: OpReading) -> Cost:
    """A reinterpretation; one that changes the element width changes the tiling too, so it is a copy."""
    if DTYPE_BITS[reading.operands[0].dtype] == DTYPE_BITS[reading.results[0].dtype]:
        return view(reading)
    return streamed(reading, OpKind.MOVE)


def _broadcast_in_dim(reading: OpReading) -> Cost:
    """The operand read once, however often it is repeated; adding dimensions of size one is a reshape."""
    operand, result = reading.operands[0], reading.results[0]
    if operand.elements == result.elements:
        dims = integers(reading.op, "broadcast_dimensions")
        kept = [dim for dim, size in zip(dims, operand.shape, strict=False) if size > 1]
        if kept == sorted(kept):
            return view(reading)
    dims = integers(reading.op, "broadcast_dimensions")
    cost = streamed(reading, OpKind.BROADCAST)
    return replace(cost, orders=(dims,)) if len(dims) > 1 else cost


def _broadcast(reading: OpReading) -> Cost:
    """New leading dimensions."""
    if reading.operands[0].elements == reading.results[0].elements:
        return view(reading)
    return streamed(reading, OpKind.BROADCAST)


def _transpose(reading: OpReading) -> Cost:
    """A transpose; one that keeps the order of all dimensions longer than one moves nothing."""
    shape = reading.operands[0].shape
    permutation = tuple(integers(reading.op, "permutation"))
    moved = [dim for dim in permutation if shape[dim] > 1]
    if moved == sorted(moved):
        return view(reading)
    return replace(streamed(reading, OpKind.TRANSPOSE), orders=(permutation,))


def _move(reading: OpReading) -> Cost:
    """Every byte in and out."""
    return streamed(reading, OpKind.MOVE)


def _concatenate(reading: OpReading) -> Cost:
    """Every byte in and out; a single operand is the result itself."""
    return view(reading) if len(reading.operands) == 1 else _move(reading)


def pads_nothing(op: Any) -> bool:
    """Whether a pad gives its operand and nothing else; one that cuts off as much as it adds has edges, too."""
    edges = (*integers(op, "edge_padding_low"), *integers(op, "edge_padding_high"))
    return bool(edges) and not any(edges) and takes_whole(op)


def _pad(reading: OpReading) -> Cost:
    """The operand, less what negative padding crops, and the padding value; with no padding at all it is a view."""
    operand, *others = reading.operands
    if operand.shape == reading.results[0].shape and pads_nothing(reading.op):
        return view(reading)
    written = reading.results[0].bytes
    return Cost(
        kind=OpKind.MOVE,
        dtype=operand.dtype,
        operand_bytes=(min(operand.bytes, written), *(tensor.bytes for tensor in others)),
        written_bytes=written,
        starts=around(reading.op),
    )


def around(op: Any) -> tuple[int, ...]:
    """How many elements a pad puts in front along each dimension, where it only puts some around its operand; else nothing.

    Nothing of constants other than zero either: only zeros can be a convolution's own padding. What is put there by no
    constant, such as a converted integer, is taken to be zero.
    """
    if constant_float(op.operands[1]) not in (None, 0.0):
        return ()
    low, high = integers(op, "edge_padding_low"), integers(op, "edge_padding_high")
    alone = bool(low) and min((*low, *high), default=0) >= 0 and not any(integers(op, "interior_padding"))
    return tuple(low) if alone else ()


def _iota(reading: OpReading) -> Cost:
    """A counter, written out; along which dimension, its order says."""
    cost = streamed(reading, OpKind.GENERATE, dtype=reading.results[0].dtype)
    return replace(cost, orders=((integer(reading.op, "iota_dimension"),),))


def _host_transfer(reading: OpReading) -> Cost:
    """Infeed and outfeed: what crosses to or from the host; tokens have no size."""
    values = (*reading.operands, *reading.results)
    return Cost(
        kind=OpKind.HOST,
        dtype=next((tensor.dtype for tensor in values if tensor.dtype != "token"), ""),
        operand_bytes=tuple(tensor.bytes for tensor in reading.operands),
        written_bytes=total_bytes(reading.results),
    )


RULES: Mapping[str, Rule] = {
    **{f"stablehlo.{name}": view for name in _VIEWS.split()},
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.broadcast": _broadcast,
    "stablehlo.transpose": _transpose,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.reverse": _move,
    "stablehlo.pad": _pad,
    "stablehlo.dynamic_pad": _pad,
    "stablehlo.constant": generated,
    "chlo.constant": generated,
    "chlo.constant_like": generated,
    "stablehlo.iota": _iota,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.infeed": _host_transfer,
    "stablehlo.outfeed": _host_transfer,
}
