"""The mesh a model is written for: the only place that knows which axes exist and how large they are.

Models name the axes they could use ("data", "fsdp", "expert", "context", "tensor"). A `MeshLayout` drops the ones the mesh
does not have, so one text serves a single device and a pod, and no device is needed: the mesh is an `AbstractMesh`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

from meshcast.base import UndividedError, UsageError
from meshcast.zoo.filled_shares import filled
from meshcast.zoo.layers.saving import kept
from meshcast.zoo.words import AUTO, BATCH

Axes = str | tuple[str, ...] | None
WHOLE = -1
"""The dimension along which something is shared out that is not."""
_SHARING = frozenset({"fsdp", "context"})  # what weights are stored over and gathered from


@dataclass(frozen=True, slots=True)
class ShardedWeight:
    """A parameter's shape and the mesh axes that each of its dimensions is stored over."""

    shape: tuple[int, ...]
    axes: tuple[Axes, ...] = ()

    def stacked(self, layers: int) -> ShardedWeight:
        """The same weight for every layer, with the leading layer axis that `lax.scan` walks."""
        return ShardedWeight((layers, *self.shape), (None, *self.axes))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshLayout:
    """Shardings over a mesh; without a mesh every method is the identity or a plain shape.

    With `frozen` the weights of products are not trained: nothing is kept for their gradients.
    """

    mesh: AbstractMesh | None = None
    sequence_parallel: bool = False
    attention: str = "plain"
    products: str = "plain"
    frozen: bool = False

    @classmethod
    def of(
        cls,
        sizes: Mapping[str, int] | None,
        *,
        axes: tuple[str, ...],
        sequence_parallel: bool = False,
        attention: str = "plain",
        products: str = "plain",
    ) -> MeshLayout:
        """The layout over a mesh of some of the `axes` a model knows; an empty mesh is one device.

        Args:
            sizes: Axes and their sizes, outermost first.
            axes: Those that the model knows.
            sequence_parallel: Whether the residual stream is split by position over "tensor" too.
            attention: A name of `attending.KINDS`; `auto`, which nobody has decided for a device, is `plain`.
            products: A name of `products.KINDS`.
        """
        for name, size in (sizes or {}).items():
            if name not in axes:
                raise UsageError(f"this model has no mesh axis {name!r}", fix="its axes are " + ", ".join(axes))
            if size < 1:
                raise UsageError(f"mesh axis {name!r} has size {size}", fix="every axis needs a size of at least 1")
        attention = "plain" if attention == AUTO else attention
        if not sizes:
            return cls(attention=attention, products=products)
        kinds = (AxisType.Auto,) * len(sizes)
        mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=kinds)
        return cls(mesh=mesh, sequence_parallel=sequence_parallel, attention=attention, products=products)

    @property
    def residual(self) -> tuple[Axes, ...]:
        """The axes of the residual stream (B, S, dim)."""
        return BATCH, ("context", "tensor") if self.sequence_parallel else "context", None

    @property
    def attends_at_once(self) -> bool:
        """Whether one fused kernel makes attention's result, which is kept as that kernel's own."""
        return self.attention == "flash" and self.size("context") == 1

    def present(self, axes: Axes) -> tuple[str, ...]:
        """The axes that split anything: those in the mesh with a size above one."""
        names = (axes,) if isinstance(axes, str) else axes or ()
        return tuple(name for name in names if self.mesh is not None and self.mesh.shape.get(name, 1) > 1)

    def size(self, axes: Axes) -> int:
        """The number of shards the axes make together."""
        return math.prod(self.mesh.shape[name] for name in self.present(axes)) if self.mesh is not None else 1

    def spec(self, *axes: Axes) -> P:
        """The partition spec of one entry per dimension, without the axes that are absent."""
        return P(*(self.present(entry) or None for entry in axes))

    def struct(self, shape: tuple[int, ...], dtype: DTypeLike, *axes: Axes) -> jax.ShapeDtypeStruct:
        """An abstract argument, refused when the mesh does not divide it."""
        for dim, (extent, entry) in enumerate(zip(shape, axes, strict=False)):
            self.require(extent, entry, f"dimension {dim} of an argument of shape {shape}")
        if self.mesh is None:
            return jax.ShapeDtypeStruct(shape, dtype)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, self.spec(*axes)))

    def placed(self, struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """An argument that is sharded over some of the mesh's axes, on this mesh."""
        if self.mesh is None:
            return struct
        spec = struct.sharding.spec if struct.sharding is not None else P()
        return jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=NamedSharding(self.mesh, spec))

    def params(self, weights: Any, dtype: DTypeLike) -> Any:
        """Abstract parameters for a pytree of `ShardedWeight`."""
        return jax.tree.map(lambda weight: self.param(weight, dtype), weights)

    def param(self, weight: ShardedWeight, dtype: DTypeLike) -> jax.ShapeDtypeStruct:
        """An abstract parameter as it is stored; devices that only store shares and gather them need not divide it.

        What they do not divide is in shares of the next whole number, the last ones with fewer (PyTorch's FSDP2).
        """
        stored = self.stored(weight)
        used = [tuple(axis for axis in self.present(entry) if axis not in _SHARING) for entry in stored]
        struct = self.struct(weight.shape, dtype, *used)
        if self.mesh is None:
            return struct
        return jax.ShapeDtypeStruct(weight.shape, dtype, sharding=NamedSharding(self.mesh, self.spec(*stored)))

    def stored(self, weight: ShardedWeight) -> tuple[Axes, ...]:
        """The axes that a weight is stored over: where "fsdp" is in the mesh, of whatever size, "context" goes with it.

        Devices that split a sequence hold the same weights, so that whoever shares weights out does so over them too: PyTorch's
        FSDP over torchtitan's `dp_shard_cp`, MaxText's rules for "embed", Megatron's FSDP over data and context ranks.
        """
        if self.mesh is None or "fsdp" not in self.mesh.axis_names:
            return weight.axes
        return tuple(_with_context(entry) for entry in weight.axes)

    def constrain(self, x: jax.Array, *axes: Axes) -> jax.Array:
        """The array, pinned to a sharding so that propagation cannot choose another.

        Inside of `shard_map` what it has divided already is left out.
        """
        if self.mesh is None:
            return x
        divided = _divided()
        mesh = jax.sharding.get_abstract_mesh() if divided else self.mesh
        pinned: jax.Array = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, self._undivided(axes, divided)))
        return pinned

    def moved(self, x: jax.Array, *, stored: Sequence[Axes], used: Sequence[Axes]) -> jax.Array:
        """An array that is stored in one sharding, in the one it is used in.

        The transpose of a constraint is the same constraint, which would hold the whole gradient on every device. Here
        the gradient is pinned to the stored sharding instead: an all-gather forward, a reduce-scatter backward.
        """
        whole = jax.custom_vjp(lambda value: self.constrain(value, *used))
        whole.defvjp(
            lambda value: (self.constrain(value, *used), None),
            lambda _, gradient: (self.constrain(gradient, *stored),),
        )
        moved: jax.Array = whole(x)
        return moved

    def whole(self, x: jax.Array) -> jax.Array:
        """Normalised activations (B, S, dim) as tensor parallelism takes them: every position on all of its devices.

        Where the residual stream is split over "tensor" they are gathered, and their gradient is reduced into shares. The
        shares are what is kept for the backward pass, which gathers again (Korthikanti 2022, section 4.2.2).
        """
        used = (BATCH, "context", None)
        if self.sequence_parallel:
            # The barrier: propagation takes what is pinned last for what all readers of a value mean, and would keep it whole.
            x = jax.lax.optimization_barrier(self.constrain(kept(x), *self.residual))
            x = self.moved(x, stored=self.residual, used=used)
        return self.constrain(x, *used)  # its gradient too: the sum of several products is reduced once

    def local(self, function: Callable[..., Any], inputs: Sequence[Sequence[Axes]], output: Sequence[Axes]) -> Any:
        """A function of what each device holds of its arguments, with communication of its own."""
        if self.mesh is None:
            return function
        divided = _divided()
        return jax.shard_map(
            function,
            mesh=None if divided else self.mesh,
            axis_names=set(self.mesh.axis_names) - divided,
            in_specs=tuple(self._undivided(axes, divided) for axes in inputs),
            out_specs=self._undivided(output, divided),
            check_vma=False,
        )

    def _undivided(self, axes: Sequence[Axes], divided: frozenset[str]) -> P:
        return self.spec(*(tuple(name for name in self.present(entry) if name not in divided) for entry in axes))

    def gather(self, values: Any, weights: Any) -> Any:
        """Weights as they are used: whole along what shares them out, still split along the rest; gradients as stored."""

        def gathered(weight: ShardedWeight, value: jax.Array) -> jax.Array:
            stored = self.stored(weight)
            if not any(_SHARING.intersection(self.present(entry)) for entry in stored):
                return value
            used = [tuple(axis for axis in self.present(entry) if axis not in _SHARING) for entry in stored]
            return self.moved(value, stored=stored, used=used)

        return jax.tree.map(gathered, weights, values)

    def spread(self, struct: jax.ShapeDtypeStruct, axis: str = "data") -> jax.ShapeDtypeStruct:
        """An argument shared out over one more axis, along a dimension that no axis splits; as it is if there is none.

        Where the axis divides no such dimension, one is filled up to shares of equal size. Sharing a share out again would
        reach into the products that make it.
        """
        dimension = self.spread_dimension(struct, axis)
        if dimension == WHOLE:
            return struct
        shape = list(struct.shape)
        shape[dimension] = filled(shape[dimension], self.size(axis))
        return self._over(jax.ShapeDtypeStruct(tuple(shape), struct.dtype, sharding=struct.sharding), dimension, axis)

    def _over(self, struct: jax.ShapeDtypeStruct, dimension: int, axes: Axes) -> jax.ShapeDtypeStruct:
        assert self.mesh is not None
        had = struct.sharding.spec if struct.sharding is not None else ()
        spec = [*had, *(None,) * (len(struct.shape) - len(had))]
        spec[dimension] = axes
        return jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=NamedSharding(self.mesh, P(*spec)))

    def spread_over_replicas(self, struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """The weight sharded over all devices with the same share of it: "data", "context", and those that split experts alone.

        An expert's weights are spread over "data" and "context"; what all experts' devices have alike, over "expert" too
        (Megatron's distributed optimizer has a group for each of the two, context ranks in both). What these axes cannot divide
        by whole dimensions is a flat buffer of shares, as all of it is there: good for what goes element by element.
        """
        spec = struct.sharding.spec if struct.sharding is not None else ()
        used = _named(struct)
        axes = [axis for axis in ("data", "context", "expert") if axis not in used and self.present(axis)]
        apart = struct
        for axis in axes:
            if (dimension := self._even_dimension(apart, axis)) != WHOLE:
                apart = self._over(apart, dimension, axis)
        if len(_named(apart)) == len(used) + len(axes):
            return apart
        # Too few whole dimensions for an axis each: all of them share one, where there is one that they divide.
        together = tuple(axes)
        for dimension, extent in enumerate(struct.shape):
            if not (spec[dimension : dimension + 1] or (None,))[0] and extent % self.size(together) == 0:
                return self._over(struct, dimension, together)
        return self._flat(struct, together)

    def _flat(self, struct: jax.ShapeDtypeStruct, axes: tuple[str, ...]) -> jax.ShapeDtypeStruct:
        """A row for each share of a weight, its elements filled up to equal shares over more axes."""
        assert self.mesh is not None
        used = tuple(name for name in self.mesh.axis_names if name in _named(struct))
        own = struct.sharding.shard_shape(struct.shape) if struct.sharding is not None else struct.shape
        shape = (self.size(used), filled(math.prod(own), self.size(axes)))
        sharding = NamedSharding(self.mesh, self.spec(used, axes))
        return jax.ShapeDtypeStruct(shape, struct.dtype, sharding=sharding)

    def spread_dimension(self, struct: jax.ShapeDtypeStruct, axis: str = "data") -> int:
        """The dimension that `spread` divides: one in equal parts, else that of the smallest shares; `WHOLE` without any."""
        if self.mesh is None or not self.present(axis):
            return WHOLE
        even = self._even_dimension(struct, axis)
        if even != WHOLE:
            return even
        size = self.size(axis)
        whole = [d for d in self._undivided_dimensions(struct) if struct.shape[d] > 1]
        return min(whole, key=lambda d: filled(struct.shape[d], size) / struct.shape[d], default=WHOLE)

    def _even_dimension(self, struct: jax.ShapeDtypeStruct, axis: str) -> int:
        """The first dimension that no axis splits and that this one divides."""
        size = self.size(axis)
        return next((d for d in self._undivided_dimensions(struct) if struct.shape[d] % size == 0), WHOLE)

    @staticmethod
    def _undivided_dimensions(struct: jax.ShapeDtypeStruct) -> list[int]:
        spec = (*(struct.sharding.spec if struct.sharding is not None else ()), *(None,) * len(struct.shape))
        return [d for d in range(len(struct.shape)) if not spec[d]]

    def require(self, count: int, axes: Axes, what: str) -> None:
        """Refuses a count that the axes do not divide."""
        if count % self.size(axes):
            split = {name: self.size(name) for name in self.present(axes)}
            raise UndividedError(what, count, split, fix="change the mesh, or the size it has to divide")


def _named(struct: jax.ShapeDtypeStruct) -> set[str]:
    """The axes that an argument is sharded over."""
    spec = struct.sharding.spec if struct.sharding is not None else ()
    return {name for entry in spec for name in ((entry,) if isinstance(entry, str) else entry or ())}


def _with_context(axes: Axes) -> Axes:
    names = (axes,) if isinstance(axes, str) else axes or ()
    return tuple(each for name in names for each in ((name, "context") if name == "fsdp" else (name,))) or None


def _divided() -> frozenset[str]:
    """Axes that a `shard_map` around the code that is traced has divided already."""
    return frozenset(jax.sharding.get_abstract_mesh().manual_axes)
