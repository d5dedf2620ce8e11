"""Functions as targets: a product over two mesh axes, and one that raises."""

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P


def make() -> object:
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
    x = jax.ShapeDtypeStruct((1024, 512), jnp.bfloat16, sharding=NamedSharding(mesh, P("data", "model")))
    w = jax.ShapeDtypeStruct((512, 2048), jnp.bfloat16, sharding=NamedSharding(mesh, P("model", None)))
    return (lambda x, w: jax.nn.relu(x @ w)), (x, w)


def raises() -> object:
    raise ValueError("out of luck")
