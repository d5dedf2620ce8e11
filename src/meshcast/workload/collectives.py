"""Collectives of a program: Shardy's, StableHLO's own, and the ones sharded shifts imply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from meshcast.base import Group, Mesh, SubAxis
from meshcast.partition import IndexMap, received_elements, shifted_reversal
from meshcast.programs import ir, sdy, stablehlo
from meshcast.workload.graph import Collective, Cost, OpKind, Tensor
from meshcast.workload.groups import permutation, replica_group
from meshcast.workload.local_types import Axis, LocalTypes, axis_of
from meshcast.workload.rule import OpReading

SDY_VIEWS = frozenset(
    f"sdy.{name}"
    for name in (
        "sharding_constraint", "propagation_barrier", "sharded_to_unreduced", "replicated_to_unreduced",
        "data_flow_edge", "func_data_flow_edge", "sharding_group",
    )
)  # fmt: skip
SDY_COLLECTIVES = (
    "sdy.all_gather", "sdy.all_reduce", "sdy.reduce_scatter", "sdy.all_to_all", "sdy.collective_permute",
)  # fmt: skip
STABLEHLO_COLLECTIVES = (
    "stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.reduce_scatter", "stablehlo.all_to_all",
    "stablehlo.collective_permute", "stablehlo.collective_broadcast", "stablehlo.collective_reduce", "stablehlo.send",
    "stablehlo.recv",
)  # fmt: skip
_AXES_ATTRIBUTE = {
    "all_reduce": "reduction_axes",
    "all_gather": "gathering_axes",
    "reduce_scatter": "reduce_scatter_axes",
}
_SHIFTING = frozenset(
    f"stablehlo.{name}"
    for name in ("slice", "pad", "reverse", "concatenate", "convolution", "reduce_window", "select_and_scatter")
)


class CollectiveReader:
    """Costs of communication ops for one mesh."""

    def __init__(self, mesh: Mesh, types: LocalTypes) -> None:
        self._mesh = mesh
        self._types = types

    def sdy(self, operation: Any, operand: Tensor, result: Tensor) -> Iterator[Cost]:
        """A Shardy collective as one op per group of axes."""
        kind = operation.name.removeprefix("sdy.")
        for axes in self._sdy_axes(operation, kind):
            group = self._mesh.group(axes)
            yield _cost(kind, group, operand.bytes, result.bytes, "sharding")

    def _sdy_axes(self, operation: Any, kind: str) -> list[list[Axis]]:
        attributes = operation.attributes
        if kind == "all_to_all":
            # One all-to-all per parameter, `{"x"}: 0->1`: each moves its own axes from one dimension to another.
            return [_axis_refs(part) for part in str(attributes["params"]).split("->")[:-1]]
        if kind in _AXES_ATTRIBUTE:
            return [_axis_refs(str(attributes[_AXES_ATTRIBUTE[kind]]))]
        sharding = sdy.TensorShardingAttr(attributes["out_sharding"])
        dims = (sdy.DimensionShardingAttr(d).axes for d in sharding.dimension_shardings)
        return [[axis_of(a) for axes in dims for a in axes]]

    def stablehlo(self, operation: Any, operands: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> Cost:
        """A StableHLO collective, its replica groups made compact."""
        kind = operation.name.removeprefix("stablehlo.")
        sent = sum(t.bytes for t in operands)
        received = sum(t.bytes for t in results)
        attributes = operation.attributes
        if kind in ("send", "recv"):
            return _cost("collective_permute", Group(dims=((2, 1),)), sent, received, "program")
        if kind == "collective_permute":
            group, pairs = permutation(attributes["source_target_pairs"], self._mesh)
            return _cost(kind, group, sent, received, "program", pairs)
        return _cost(kind, replica_group(attributes["replica_groups"], self._mesh), sent, received, "program")

    def implied(
        self, reading: OpReading, operands: tuple[int, ...], results: tuple[int, ...], shardings: Mapping[int, Any]
    ) -> Iterator[Cost]:
        """Exchanges that an op shifting data along a sharded dimension needs (halos, rolls, scan carries)."""
        if reading.name not in _SHIFTING or not any(i in shardings for i in results):
            return
        out_axes = self._types.dim_axes(shardings[results[0]])
        for position, dim, out_dim, index_map in _shifts(reading):
            if out_dim >= len(out_axes):
                continue
            axes = out_axes[out_dim]
            shards = self._types.shards(axes)
            if shards <= 1:
                continue
            operand = reading.operands[position]
            in_size = ir.RankedTensorType(reading.op.operands[position].type).shape[dim]
            out_size = ir.RankedTensorType(reading.op.results[0].type).shape[out_dim]
            if index_map is None:
                elements = shifted_reversal(in_size, shards)
            elif index_map.is_scan(in_size):
                elements = 1  # each shard passes on one carry
            else:
                elements = received_elements(in_size=in_size, out_size=out_size, shards=shards, index_map=index_map)
            if elements:
                moved = operand.bytes // max(1, operand.shape[dim]) * elements
                yield _cost("collective_permute", self._mesh.group(axes), moved, moved, "halo")


def _cost(kind: str, group: Group, sent: int, received: int, reason: str, pairs: bytes = b"") -> Cost:
    collective = Collective(kind=kind, group=group, input_bytes=sent, output_bytes=received, reason=reason, pairs=pairs)
    return Cost(kind=OpKind.COLLECTIVE, operand_bytes=(sent,), written_bytes=received, geometry=collective)


def _axis_refs(text: str) -> list[Axis]:
    """Axis references in an attribute the bindings have no class for: `[{"x"}, {"y":(1)2}]`."""
    found = re.findall(r'"([^"]+)"(?::\((\d+)\)(\d+))?', text)
    return [SubAxis(name=name, pre_size=int(pre), size=int(size)) if size else name for name, pre, size in found]


def _shifts(reading: OpReading) -> Iterator[tuple[int, int, int, IndexMap | None]]:
    """(operand, its dimension, the result's dimension, index map) for every dimension the op shifts."""
    attributes = reading.op.attributes
    match reading.name.removeprefix("stablehlo."):
        case "slice":
            starts, strides = _ints(attributes["start_indices"]), _ints(attributes["strides"])
            for dim, (start, stride) in enumerate(zip(starts, strides, strict=True)):
                yield 0, dim, dim, IndexMap(stride=stride, offset=start)
        case "pad":
            interior = _ints(attributes["interior_padding"])
            for dim, low in enumerate(_ints(attributes["edge_padding_low"])):
                yield 0, dim, dim, IndexMap(offset=-low, dilation=interior[dim] + 1)
        case "reverse":
            for dim in _ints(attributes["dimensions"]):
                yield 0, dim, dim, None
        case "concatenate":
            dim = ir.IntegerAttr(attributes["dimension"]).value
            offset = 0
            for position, value in enumerate(reading.op.operands):
                yield position, dim, dim, IndexMap(offset=-offset)
                offset += ir.RankedTensorType(value.type).shape[dim]
        case "convolution":
            yield from _convolution_shifts(reading)
        case "reduce_window":
            window = _ints(attributes["window_dimensions"])
            strides, spread, dilations = (
                _ints(attributes[name]) if name in attributes else [1] * len(window)
                for name in ("window_strides", "base_dilations", "window_dilations")
            )
            lows = _padding_lows(attributes, len(window))
            for dim, size in enumerate(window):
                extent = (size - 1) * dilations[dim] + 1
                if size > 1:
                    yield (
                        0,
                        dim,
                        dim,
                        IndexMap(stride=strides[dim], offset=-lows[dim], extent=extent, dilation=spread[dim]),
                    )
        case "select_and_scatter":
            window = _ints(attributes["window_dimensions"]) if "window_dimensions" in attributes else []
            for dim, size in enumerate(window):
                if size > 1:
                    yield 0, dim, dim, IndexMap(offset=-(size // 2), extent=size)


def _convolution_shifts(reading: OpReading) -> Iterator[tuple[int, int, int, IndexMap]]:
    attributes = reading.op.attributes
    numbers = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    kernel_type = ir.RankedTensorType(reading.op.operands[1].type)
    rank = len(numbers.input_spatial_dimensions)
    strides, spread, dilation = (
        _ints(attributes[name]) if name in attributes else [1] * rank
        for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    lows = _padding_lows(attributes, rank)
    for i in range(rank):
        extent = (kernel_type.shape[numbers.kernel_spatial_dimensions[i]] - 1) * dilation[i] + 1
        index_map = IndexMap(stride=strides[i], offset=-lows[i], extent=extent, dilation=spread[i])
        yield 0, numbers.input_spatial_dimensions[i], numbers.output_spatial_dimensions[i], index_map


def _padding_lows(attributes: Any, rank: int) -> list[int]:
    if "padding" not in attributes:
        return [0] * rank
    return [int(low) for low in np.asarray(ir.DenseElementsAttr(attributes["padding"])).reshape(rank, 2)[:, 0]]


def _ints(attribute: Any) -> list[int]:
    return [int(i) for i in ir.DenseI64ArrayAttr(attribute)]
