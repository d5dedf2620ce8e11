"""How a module's parameters and inputs lie on the mesh: from DTensors, from FSDP, from a plan, and by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshcast.base import UsageError, nearest
from meshcast.programs.pytorch.options import TorchOptions, names
from meshcast.programs.pytorch.placements import (
    InputPlacement,
    Spec,
    abstract_mesh,
    axis_names,
    is_distributed,
    matching,
    mesh_axes,
    refuse_unmatched,
    spec_of_placements,
    spec_of_plan,
)
from meshcast.programs.pytorch.tracing import fsdp


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLayout:
    """The mesh, and the axes per dimension of every parameter and input by name.

    `examples` is the size of dimension 0 that the inputs share, 0 where they share none.
    """

    placement: InputPlacement
    parameters: Mapping[str, Spec]
    inputs: Mapping[str, Spec]
    examples: int

    @classmethod
    def of(
        cls,
        module: Any,
        parameters: Mapping[str, Any],
        inputs: Mapping[str, Any],
        options: TorchOptions,
        *,
        where: str,
    ) -> TorchLayout:
        """The layout that tensors and options say.

        Axes that split the batch are, unless stated, those that FSDP works over and those that split nothing else.
        """
        axes = mesh_axes((*parameters.values(), *inputs.values()), options.mesh)
        refuse_unmatched(options.plan, parameters, where="plan")
        refuse_unmatched(options.inputs, inputs, where="inputs")
        if not axes and (options.plan or options.inputs or options.batch_axes):
            raise UsageError("placements without a mesh", where=where, fix='add mesh={"dp": 2, "tp": 4}')
        placed = {name: _spec(name, p, options.plan, axes) for name, p in parameters.items()}
        given = {
            name: _spec(name, t, options.inputs, axes) for name, t in inputs.items() if _is_placed(name, t, options)
        }
        batch_axes = _batch_axes(module, axes, placed, given, options)
        placement = InputPlacement(mesh=abstract_mesh(axes), batch_axes=batch_axes)
        placed = {name: _evened(placement, parameters[name].shape, spec) for name, spec in placed.items()}
        for name, tensor in inputs.items():
            given.setdefault(name, placement.batch(tensor.shape))
        sizes = {tensor.shape[0] for tensor in inputs.values() if tensor.ndim}
        return cls(
            placement=placement,
            parameters=placed,
            inputs=given,
            examples=sizes.pop() if len(sizes) == 1 else 0,
        )


def _is_placed(name: str, tensor: Any, options: TorchOptions) -> bool:
    return is_distributed(tensor) or matching(options.inputs, name)[0]


def _spec(name: str, tensor: Any, patterns: Mapping[str, Any], axes: Mapping[str, int]) -> Spec:
    dims = int(tensor.ndim)
    found, entry = matching(patterns, name)
    if found:
        return spec_of_plan(entry, tuple(axes), dims, where=name)
    if is_distributed(tensor):
        return spec_of_placements(tensor.placements, axis_names(tensor.device_mesh), dims, where=name)
    return ((),) * dims


def _evened(placement: InputPlacement, shape: Sequence[int], spec: Spec) -> Spec:
    """A parameter's axes with those of FSDP on a dimension that they divide.

    FSDP pads a dimension that its axis does not divide, and gathers parameters whole before use: any other dimension
    gives the same bytes and the same collectives. Where none is divisible the parameter is small, and whole everywhere.
    """
    moved = tuple(
        axis
        for size, axes in zip(shape, spec, strict=True)
        if size % placement.shards(axes)
        for axis in axes
        if axis in placement.batch_axes
    )
    if not moved:
        return spec
    dims = [tuple(axis for axis in axes if axis not in moved) for axes in spec]
    for dim, size in enumerate(shape):
        if size % placement.shards((*dims[dim], *moved)) == 0:
            dims[dim] = (*dims[dim], *moved)
            break
    return tuple(dims)


def _batch_axes(
    module: Any,
    axes: Mapping[str, int],
    parameters: Mapping[str, Spec],
    inputs: Mapping[str, Spec],
    options: TorchOptions,
) -> tuple[str, ...]:
    if options.batch_axes is not None:
        for axis in names(options.batch_axes):
            if axis not in axes:
                raise UsageError(f"the mesh has no axis {axis!r}", where="batch_axes", fix=nearest(axis, axes))
        return tuple(axis for axis in axes if axis in names(options.batch_axes))
    split = {axis for specs in (parameters, inputs) for spec in specs.values() for dim in spec for axis in dim}
    stated = {axis for spec in inputs.values() for first in spec[:1] for axis in first}
    batch = (set(axes) - split) | set(fsdp.axes(module)) | stated
    return tuple(axis for axis in axes if axis in batch)
