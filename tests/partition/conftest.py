"""Sharded programs for the partition tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast.programs import Program, capture

Sharded = Callable[..., Program]


class MeshKit:
    """Shapes and constraints over one abstract mesh."""

    def __init__(self, **axes: int) -> None:
        self.mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))

    def shape(self, dims: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, dtype, sharding=NamedSharding(self.mesh, P(*spec)))

    def constrain(self, value: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(value, NamedSharding(self.mesh, P(*spec)))

    def capture(self, fn: Any, *args: Any, **options: Any) -> Program:
        return capture(fn, *args, name="program", platform="cpu", options=options)


@pytest.fixture
def kit() -> MeshKit:
    """Eight devices: x=4, y=2."""
    return MeshKit(x=4, y=2)
