"""Arrays for the zoo's abstract arguments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np

# Compiling quickly matters more here than running quickly: one module of machine code, not one for each of many threads. Releases
# that can still do without MLIR's emitters of fusions compile four times as fast without them.
QUICK: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    **({"xla_cpu_use_fusion_emitters": False} if jaxlib.version.__version__.startswith("0.10.") else {}),
}


def concrete(args: tuple[Any, ...], roles: list[str]) -> list[Any]:
    """Arrays for abstract arguments: scaled random weights, zero state, integers below the smallest vocabulary.

    NumPy makes them: JAX would compile a program for every shape.
    """
    rng = np.random.default_rng(0)

    def weight(path: Any, leaf: Any) -> jax.Array:
        name = jax.tree_util.keystr(path[-1:])
        if "norm" in name or "scale" in name:
            return jnp.asarray(np.full(leaf.shape, 0.0 if "bias" in name else 1.0, leaf.dtype))
        scale = leaf.shape[-2] ** -0.5 if len(leaf.shape) > 1 else 0.0
        return jnp.asarray(rng.normal(0, scale, leaf.shape).astype(leaf.dtype))

    def datum(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 16, leaf.shape).astype(leaf.dtype))
        return jnp.asarray(rng.normal(size=leaf.shape).astype(leaf.dtype))

    def zeros(leaf: Any) -> jax.Array:
        return jnp.asarray(np.zeros(leaf.shape, leaf.dtype))

    makers = {"opt_state": zeros, "cache": zeros, "batch": datum}
    return [
        jax.tree_util.tree_map_with_path(weight, arg) if role == "params" else jax.tree.map(makers[role], arg)
        for role, arg in zip(roles, args, strict=True)
    ]
