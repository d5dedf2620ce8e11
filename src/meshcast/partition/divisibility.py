"""Whether a mesh divides what it shards: checked before partitioning, so that the answer names argument and axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from meshcast.base import InfeasibleError, Mesh
from meshcast.programs import Program, entry_function, has_uneven_shares, ir, sdy


def check_divisible(program: Program, mesh: Mesh) -> None:
    """Raises when an argument's dimension is not a multiple of the axes it is sharded over (as JAX itself demands).

    Programs that were captured with uneven shares say so, and have them.
    """
    if has_uneven_shares(program):
        return
    main = entry_function(program.module, where=program.name)
    if "arg_attrs" not in main.attributes:
        return
    sizes = mesh.sizes
    for index, (value, marks) in enumerate(
        zip(main.operation.regions[0].blocks[0].arguments, main.attributes["arg_attrs"], strict=True)
    ):
        marks = ir.DictAttr(marks)
        if "sdy.sharding" not in marks or not isinstance(value.type, ir.RankedTensorType):
            continue
        for dim, sharding in enumerate(sdy.TensorShardingAttr(marks["sdy.sharding"]).dimension_shardings):
            refs = [sdy.AxisRefAttr(axis) for axis in sdy.DimensionShardingAttr(sharding).axes]
            axes = [ref.name for ref in refs]
            shards = math.prod(_size(ref, sizes) for ref in refs)
            size = value.type.shape[dim]
            if shards > 1 and size > 0 and size % shards:
                name = program.arguments[index].name
                raise InfeasibleError(
                    f"dimension {dim} of {name} has size {size}, which {shards} devices "
                    f"({'x'.join(axes)}) do not divide",
                    where=program.name,
                    fix=f"choose sizes of {', '.join(axes)} whose product divides {size}",
                )


def _size(axis: Any, sizes: Mapping[str, int]) -> int:
    """Devices along an axis, or along the part of it that a sharding names."""
    if axis.sub_axis_info is not None:
        return int(sdy.SubAxisInfoAttr(axis.sub_axis_info).size)
    return sizes.get(axis.name, 1)
