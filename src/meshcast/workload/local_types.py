"""Local tensors: an MLIR type divided by its Shardy sharding, as one device holds it."""

from __future__ import annotations

import math
from typing import Any

from meshcast.base import Mesh, SubAxis, UnsupportedError
from meshcast.programs import DYNAMIC, bounds_of, ir, sdy
from meshcast.workload.graph import DTYPE_BITS, Tensor

Axis = str | SubAxis
TOKEN = Tensor((), "token")


class TupleError(UnsupportedError):
    """A value is a tuple."""


class LocalTypes:
    """Types to local tensors, each (type, sharding) pair worked out once."""

    def __init__(self, mesh: Mesh, *, where: str) -> None:
        self._mesh = mesh
        self._where = where
        self._tensors: dict[Any, Tensor] = {}
        self._whole: dict[Any, Tensor] = {}  # of types without a sharding, which most are
        self._dim_axes: dict[Any, tuple[tuple[Axis, ...], ...]] = {}

    def tensor(self, value_type: Any, sharding: Any | None = None) -> Tensor:
        """The part of a value that one device holds; uneven shards are rounded up, as padding would."""
        if sharding is None:
            found = self._whole.get(value_type)
            if found is None:
                found = self._whole[value_type] = self._global(value_type)
            return found
        key = (value_type, sharding)
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = self._divide(self._global(value_type), sharding)
        return found

    def dim_axes(self, sharding: Any | None) -> tuple[tuple[Axis, ...], ...]:
        """Mesh axes per tensor dimension; empty for a replicated value."""
        if sharding is None:
            return ()
        found = self._dim_axes.get(sharding)
        if found is None:
            dims = sdy.TensorShardingAttr(sharding).dimension_shardings
            found = tuple(tuple(axis_of(a) for a in sdy.DimensionShardingAttr(d).axes) for d in dims)
            self._dim_axes[sharding] = found
        return found

    def shards(self, axes: tuple[Axis, ...]) -> int:
        """Devices a dimension sharded over these axes is split into."""
        sizes = self._mesh.sizes
        return math.prod(axis.size if isinstance(axis, SubAxis) else sizes.get(axis, 1) for axis in axes)

    def _divide(self, whole: Tensor, sharding: Any | None) -> Tensor:
        axes = self.dim_axes(sharding)
        if not any(axes):
            return whole
        shape = tuple(-(-size // self.shards(axes[d])) for d, size in enumerate(whole.shape))
        return Tensor(shape, whole.dtype)

    def _global(self, value_type: Any) -> Tensor:
        if isinstance(value_type, ir.RankedTensorType):
            shape = list(value_type.shape)
            if not value_type.has_static_shape:
                bounds = bounds_of(value_type)
                shape = [bounds[d] if size == DYNAMIC else size for d, size in enumerate(shape)]
                if DYNAMIC in shape:
                    raise UnsupportedError(
                        f"a dynamic dimension without a bound in {value_type}",
                        where=self._where,
                        fix="give it with --dim",
                    )
            return Tensor(tuple(shape), self._dtype(str(value_type.element_type)))
        text = str(value_type)
        if text in ("!stablehlo.token", "token"):
            return TOKEN
        kind = TupleError if isinstance(value_type, ir.TupleType) else UnsupportedError
        raise kind(f"values of type {text} are not modelled", where=self._where, fix="use ranked tensors")

    def _dtype(self, name: str) -> str:
        if name not in DTYPE_BITS:
            raise UnsupportedError(f"no size is known for the element type {name}", where=self._where)
        return name


def axis_of(attribute: Any) -> Axis:
    """A Shardy axis reference: a name, or a sub-axis."""
    axis = sdy.AxisRefAttr(attribute)
    if axis.sub_axis_info is None:
        return str(axis.name)
    info = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    return SubAxis(name=axis.name, pre_size=info.pre_size, size=info.size)
