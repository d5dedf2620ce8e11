"""Where tensors lie: DTensor placements and plans become JAX shardings over an abstract mesh.

A DTensor has one placement per mesh axis (`Shard(dim)`, `Replicate()`); a JAX sharding has mesh axes per dimension. Two
axes that shard one dimension split it in the mesh's order, the first into the larger parts; FSDP over a tensor-parallel
dimension (`_StridedShard`) splits what the other axes have split already, so it comes last.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast.base import InfeasibleError, UnsupportedError, UsageError, nearest

Spec = tuple[tuple[str, ...], ...]
"""Mesh axes per dimension, each outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlacement:
    """The mesh and how it splits dimension 0 of inputs: what every sharding is made from."""

    mesh: AbstractMesh | None = None
    batch_axes: tuple[str, ...] = ()

    def struct(self, shape: Sequence[int], dtype: Any, spec: Spec, *, where: str) -> jax.ShapeDtypeStruct:
        """An abstract argument, refused where the mesh does not divide it."""
        if self.mesh is None:
            return jax.ShapeDtypeStruct(tuple(shape), dtype)
        for dim, axes in enumerate(spec):
            shards = self.shards(axes)
            if shape[dim] % shards:
                raise InfeasibleError(
                    f"dimension {dim} of shape {tuple(shape)} is not divisible by {' x '.join(axes)} = {shards}",
                    where=where,
                    fix="change the mesh, the placement, or the size",
                )
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=NamedSharding(self.mesh, _partition(spec)))

    def shards(self, axes: Iterable[str]) -> int:
        """Parts that the axes make together."""
        count = 1
        for axis in axes:
            count *= self.mesh.shape[axis] if self.mesh is not None else 1
        return count

    def constrain(self, array: Any, spec: Spec, *, open_dims: bool = False) -> Any:
        """The array pinned to a sharding; with `open_dims` dimensions without axes are left to propagation."""
        if self.mesh is None:
            return array
        entries = tuple(axes if axes or not open_dims else P.UNCONSTRAINED for axes in spec)
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, _partition(entries)))

    def batch(self, shape: Sequence[int]) -> Spec:
        """Dimension 0 over the batch axes."""
        return ((self.batch_axes,) + ((),) * (len(shape) - 1)) if shape else ()


def _partition(spec: Sequence[Any]) -> P:
    return P(*(entry if entry is P.UNCONSTRAINED else tuple(entry) or None for entry in spec))


def spec_of_placements(placements: Sequence[Any], axes: Sequence[str], ndim: int, *, where: str) -> Spec:
    """Axes per dimension for DTensor placements, one per mesh axis."""
    plain: list[list[str]] = [[] for _ in range(ndim)]
    strided: list[list[str]] = [[] for _ in range(ndim)]
    for axis, placement in zip(axes, placements, strict=True):
        if placement.is_replicate():
            continue
        if placement.is_partial():
            raise UnsupportedError(
                f"a Partial placement over {axis!r} has no value of its own", where=where, fix="reduce it first"
            )
        dim = getattr(placement, "dim", None)
        if dim is None:
            raise UnsupportedError(f"no sharding for the placement {placement}", where=where, fix="use Shard(dim)")
        if not -ndim <= dim < ndim:
            raise UsageError(f"{placement} over {axis!r} on a tensor of {ndim} dimensions", where=where)
        target = strided if type(placement).__name__ == "_StridedShard" else plain
        target[dim % ndim].append(axis)
    return tuple(tuple(first + last) for first, last in zip(plain, strided, strict=True))


def spec_of_plan(entry: Any, axes: Sequence[str], ndim: int, *, where: str) -> Spec:
    """Axes per dimension for a plan's entry: `{"tp": 0}`, `{"tp": Shard(0)}`, placements in the mesh's order, or None."""
    if entry is None:
        return ((),) * ndim
    if not isinstance(entry, Mapping):
        given = entry if isinstance(entry, (tuple, list)) else (entry,)
        if len(given) != len(axes):
            raise UsageError(
                f"{len(given)} placements for a mesh of {len(axes)} axes ({', '.join(axes)})",
                where=where,
                fix='name the axes: {"tp": 0}',
            )
        entry = dict(zip(axes, given, strict=True))
    dims: list[list[str]] = [[] for _ in range(ndim)]
    for axis in entry:
        if axis not in axes:
            raise UsageError(f"the mesh has no axis {axis!r}", where=where, fix=nearest(str(axis), axes))
    for axis in axes:
        placement = entry.get(axis)
        if placement is None:
            continue
        if isinstance(placement, int):
            if not -ndim <= placement < ndim:
                raise UsageError(f"dimension {placement} of a tensor of {ndim} dimensions", where=where)
            dims[placement].append(axis)
            continue
        if not hasattr(placement, "is_replicate"):
            raise UsageError(f"{placement!r} is no placement", where=where, fix="write a dimension, or Shard(dim)")
        for dim, found in enumerate(spec_of_placements((placement,), (axis,), ndim, where=where)):
            dims[dim] += found
    return tuple(map(tuple, dims))


def matching(patterns: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """The first entry whose pattern matches a name, and whether one does."""
    for pattern, entry in patterns.items():
        if fnmatch.fnmatchcase(name, pattern):
            return True, entry
    return False, None


def refuse_unmatched(patterns: Mapping[str, Any], known: Iterable[str], *, where: str) -> None:
    """Raises for a pattern that matches nothing: it would have no effect."""
    known = list(known)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
            raise UsageError(f"{pattern!r} matches nothing", where=where, fix=nearest(pattern, known[:200]))


def is_distributed(tensor: Any) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def axis_names(device_mesh: Any) -> tuple[str, ...]:
    """Names of a `DeviceMesh`'s axes; `dim0`, `dim1` where it has none."""
    return tuple(device_mesh.mesh_dim_names or (f"dim{dim}" for dim in range(device_mesh.ndim)))


def mesh_axes(tensors: Iterable[Any], stated: Mapping[str, int] | None) -> dict[str, int]:
    """Axes with sizes, outermost first: as stated, else those of the root meshes of all DTensors.

    Raises:
        UsageError: Two meshes, or a mesh and what is stated, give one axis two sizes.
    """
    axes: dict[str, int] = dict(stated or {})
    meshes = {id(tensor.device_mesh): tensor.device_mesh for tensor in tensors if is_distributed(tensor)}
    roots = [getattr(mesh, "_get_root_mesh", lambda mesh=mesh: mesh)() for mesh in meshes.values()]
    for mesh in sorted(roots, key=lambda mesh: -mesh.ndim) + list(meshes.values()):
        for name, size in zip(axis_names(mesh), mesh.shape, strict=True):
            if axes.setdefault(name, size) != size:
                raise UsageError(
                    f"the mesh axis {name!r} has sizes {axes[name]} and {size}", where="mesh", fix="make them agree"
                )
    for name, size in axes.items():
        if not isinstance(size, int) or size < 1:
            raise UsageError(f"the mesh axis {name!r} has size {size!r}", where="mesh", fix="give a positive integer")
    return axes


def abstract_mesh(axes: Mapping[str, int]) -> AbstractMesh | None:
    """A mesh without devices; None for a single one."""
    if not axes:
        return None
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
