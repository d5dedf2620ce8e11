"""One small training step, and every form it may come in."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast.programs import mlir


class Step(NamedTuple):
    """A function with its arguments."""

    fn: Any
    args: tuple[Any, ...]

    @property
    def lowered(self) -> Any:
        return self.fn.trace(*self.args).lower(lowering_platforms=("cuda",))

    @property
    def exported(self) -> Any:
        return jax.export.export(self.fn, platforms=("cuda",))(*self.args)


def forms(step: Step) -> dict[str, bytes]:
    """The step in every file format."""
    lowered = step.lowered
    module = lowered.compiler_ir("stablehlo")
    return {
        "text": lowered.as_text(debug_info=True).encode(),
        "bytecode": mlir.to_bytecode(module),
        "portable": bytes(step.exported.mlir_module_serialized),
        "exported": bytes(step.exported.serialize()),
        "hlo": lowered.as_text("hlo").encode(),
    }


def _loss(params: Any, batch: Any) -> Any:
    def layer(x: Any, w: Any) -> tuple[Any, None]:
        return jnp.tanh(x @ w), None

    return jax.lax.scan(layer, batch["x"], params["layers"])[0].sum()


@pytest.fixture(scope="session")
def step() -> Step:
    """One device."""
    params = {
        "layers": jax.ShapeDtypeStruct((3, 64, 64), jnp.float32),
        "unused": jax.ShapeDtypeStruct((5,), jnp.float32),
    }
    return Step(
        jax.jit(jax.grad(_loss), donate_argnums=0), (params, {"x": jax.ShapeDtypeStruct((16, 64), jnp.float32)})
    )


@pytest.fixture(scope="session")
def sharded_step() -> Step:
    """Eight devices, data=4 x model=2."""
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def shape(dims: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def fn(params: Any, x: Any) -> Any:
        hidden = jnp.tanh(x @ params["up"])
        out = jax.lax.with_sharding_constraint(hidden @ params["down"], NamedSharding(mesh, P("data", None)))
        return out.sum()

    params = {"up": shape((64, 128), None, "model"), "down": shape((128, 64), "model", None)}
    return Step(jax.jit(fn), (params, shape((16, 64), "data", None)))
