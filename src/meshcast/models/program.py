"""What a builder returns, and the training step that the language models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.errors import InfeasibleError
from meshcast.models.layers import BATCH
from meshcast.models.optimizers import adamw, adamw_state
from meshcast.models.sharding import Layout

Program = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def jit_options(layout: Layout, *, donate: tuple[int, ...], results: Any) -> dict[str, Any]:
    """Options of `jax.jit`: what is donated, and results sharded as `results` says.

    A donated buffer is reused only by a result of the same sharding, so the results' shardings are never left open.
    """
    if layout.mesh is None:
        return {"donate_argnums": donate}
    return {"donate_argnums": donate, "out_shardings": jax.tree.map(lambda leaf: leaf.sharding, results)}


def adamw_program(
    layout: Layout, loss: Callable[[Any, Any], jax.Array], params: Any, batch: Any, *, accumulate: int = 1
) -> Program:
    """The training step of a loss under AdamW, donating parameters and optimizer state.

    With `accumulate` microbatches, `batch` has a leading axis of that size and the gradients are summed over it in fp32.
    """

    def gradients(params: Any, batch: Any) -> tuple[jax.Array, Any]:
        if accumulate == 1:
            return jax.value_and_grad(loss)(params, batch)

        def add(total: Any, microbatch: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(params, microbatch)), None

        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        (value, grads), _ = jax.lax.scan(add, (jnp.float32(0), zeros), batch)
        return value / accumulate, jax.tree.map(lambda g: g / accumulate, grads)

    def train_step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        value, grads = gradients(params, batch)
        params, opt_state = adamw(params, grads, opt_state)
        return params, opt_state, value

    opt_state = adamw_state(params)
    results = (params, opt_state, layout.struct((), jnp.float32))
    return train_step, (params, opt_state, batch), jit_options(layout, donate=(0, 1), results=results)


def microbatched(
    layout: Layout, accumulate: int, **fields: tuple[tuple[int, ...], DTypeLike]
) -> dict[str, jax.ShapeDtypeStruct]:
    """Abstract data, rows of a batch split over the mesh, behind an axis of microbatches where there are several."""
    found = {}
    for name, ((batch, *rest), dtype) in fields.items():
        if batch % accumulate:
            raise InfeasibleError(
                f"batch={batch} does not make accumulate={accumulate} equal microbatches", fix="change one of them"
            )
        shape: tuple[int, ...] = (batch // accumulate, *rest)
        if accumulate > 1:
            found[name] = layout.struct((accumulate, *shape), dtype, None, BATCH)
        else:
            found[name] = layout.struct(shape, dtype, BATCH)
    return found


def token_batch(layout: Layout, batch: int, seq: int, *, accumulate: int = 1) -> dict[str, jax.ShapeDtypeStruct]:
    """Tokens and the targets they predict, one row per sequence."""
    rows = ((batch, seq), jnp.int32)
    return microbatched(layout, accumulate, tokens=rows, targets=rows)
