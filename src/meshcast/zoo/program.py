"""What a builder returns, and the training step that the language models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

from meshcast.base import InfeasibleError, UsageError
from meshcast.zoo.builder import ModelProgram as ModelProgram
from meshcast.zoo.filled_shares import as_share, filled, with_fill, without_fill
from meshcast.zoo.layers.adapters import joined, parted
from meshcast.zoo.layers.pieces import BATCH
from meshcast.zoo.optimizers import adamw, adamw_state
from meshcast.zoo.sharding import WHOLE, Axes, MeshLayout

Reduced = Callable[[Any], Any]


def jit_options(layout: MeshLayout, *, donate: tuple[int, ...], results: Any) -> dict[str, Any]:
    """Options of `jax.jit`: what is donated, and results sharded as `results` says.

    A donated buffer is reused only by a result of the same sharding, so the results' shardings are never left open.
    """
    if layout.mesh is None:
        return {"donate_argnums": donate}
    return {"donate_argnums": donate, "out_shardings": jax.tree.map(lambda leaf: leaf.sharding, results)}


def adamw_program(
    layout: MeshLayout,
    loss: Callable[[Any, Any], jax.Array],
    params: Any,
    batch: Any,
    *,
    accumulate: int = 1,
    zero: int = 0,
    gradient_dtype: DTypeLike = "float32",
    adapters_only: bool = False,
) -> ModelProgram:
    """The training step of a loss under AdamW, donating parameters and optimizer state.

    With `accumulate` microbatches, `batch` has a leading axis of that size and the gradients are summed over it in
    `gradient_dtype`: on each replica of "data" alone, and over replicas once at the end. What is reduced there is in that type
    too; what the partitioner reduces inside of the backward pass is in the compute dtype, as its products are.
    `zero` (Rajbhandari 2020) shares the optimizer's state out over "data": 1 reduces gradients into shares once a step, 2 for
    every microbatch; the parameters after the update are gathered. What the replicas do not divide is filled up to equal
    shares, as flat buffers are (DeepSpeed, Megatron). Where the parameters are in half precision, the state then holds their
    fp32 copy too. With `adapters_only` the other parameters stay as they are.
    """
    if zero not in (0, 1, 2):
        raise UsageError(f"zero={zero} is not a stage of ZeRO here", where="--set", fix="0, 1 or 2; 3 is the axis fsdp")
    trained = parted(params)[0] if adapters_only else params
    shares = jax.tree.map(layout.spread, trained) if zero else trained
    dimensions = jax.tree.map(lambda p: layout.spread_dimension(p) if zero else WHOLE, trained)

    def shared(values: Any) -> Any:
        """Values like the parameters, as the optimizer's state is stored."""
        if not zero or layout.mesh is None:
            return values
        return jax.tree.map(as_share, values, shares)

    def gradients(params: Any, frozen: Any, batch: Any) -> tuple[jax.Array, Any]:
        if layout.size("data") == 1 or (accumulate == 1 and not zero):
            return _mean(_beside(loss, frozen), params, batch, accumulate, gradient_dtype)
        return _mean_apart(
            layout, loss, params, batch, accumulate, gradient_dtype, dimensions, each=zero == 2, frozen=frozen
        )

    half = any(leaf.dtype.itemsize < 4 for leaf in jax.tree.leaves(trained))
    opt_state = adamw_state(shares)
    if zero and half:
        opt_state["master"] = jax.tree.map(
            lambda share: jax.ShapeDtypeStruct(share.shape, jnp.float32, sharding=share.sharding), shares
        )

    def update(params: Any, frozen: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, Any]:
        value, grads = gradients(params, frozen, batch)
        master = opt_state.get("master")
        moments = {name: held for name, held in opt_state.items() if name != "master"}
        stepped, moments = adamw(shared(params) if master is None else master, grads, moments)
        whole = jax.tree.map(
            lambda p, s, share: without_fill(s.astype(p.dtype), p.shape, share), params, stepped, shares
        )
        return whole, moments if master is None else moments | {"master": stepped}, value

    def train_step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        if not adapters_only:
            return update(params, None, opt_state, batch)
        trained, frozen = parted(params)
        stepped, state, value = update(trained, frozen, opt_state, batch)
        return joined(stepped, frozen), state, value

    results = (params, opt_state, layout.struct((), jnp.float32))
    return train_step, (params, opt_state, batch), jit_options(layout, donate=(0, 1), results=results)


def _beside(loss: Callable[[Any, Any], Any], frozen: Any) -> Callable[[Any, Any], Any]:
    """The loss as a function of the parameters that are trained, where others are frozen."""
    return loss if frozen is None else lambda trained, batch: loss(joined(trained, frozen), batch)


def mean_with_extras(
    layout: MeshLayout, loss: Callable[[Any, Any], Any], params: Any, batch: Any, *, accumulate: int, apart: bool
) -> tuple[Any, Any]:
    """`(loss, extras)` and the gradients of the loss, means over microbatches; `loss` returns the two.

    With `apart`, replicas of "data" are averaged once at the end, and the loss is of a replica's own samples.
    """
    if not apart:
        return _mean(loss, params, batch, accumulate, jnp.float32, extras=True)
    whole = jax.tree.map(lambda _: WHOLE, params)
    return _mean_apart(layout, loss, params, batch, accumulate, jnp.float32, whole, each=False, extras=True)


def _mean(
    loss: Callable[[Any, Any], Any],
    params: Any,
    batch: Any,
    accumulate: int,
    dtype: DTypeLike,
    reduced: Reduced | None = None,
    *,
    extras: bool = False,
) -> tuple[Any, Any]:
    """The loss and its gradients; of several microbatches their mean, summed in a type of its own.

    `reduced` is what becomes of each microbatch's gradients before they are added up. With `extras` the loss has more
    to tell, and so has what is returned.
    """
    reduce = reduced or (lambda gradients: gradients)
    differentiate = jax.value_and_grad(loss, has_aux=extras)
    if accumulate == 1:
        value, grads = differentiate(params, batch)
        return value, reduce(grads)

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        value, grads = differentiate(params, microbatch)
        return jax.tree.map(lambda sum, new: sum + new.astype(sum.dtype), total, (value, reduce(grads))), None

    shapes = jax.eval_shape(reduce, params) if reduced else params
    zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, dtype), shapes)
    told = jax.eval_shape(loss, params, jax.tree.map(lambda field: field[0], batch)) if extras else jnp.float32(0)
    start = jax.tree.map(lambda v: jnp.zeros(v.shape, jnp.float32), told)
    total, _ = jax.lax.scan(add, (start, zeros), batch)
    mean: tuple[Any, Any] = jax.tree.map(lambda sum: sum / accumulate, total)
    return mean


def _mean_apart(
    layout: MeshLayout,
    loss: Callable[[Any, Any], Any],
    params: Any,
    batch: Any,
    accumulate: int,
    dtype: DTypeLike,
    shares: Any,
    *,
    each: bool,
    extras: bool = False,
    frozen: Any = None,
) -> tuple[Any, Any]:
    """The gradients with replicas of "data" apart until they are averaged: after `each` microbatch, or once at the end.

    Gradients that `shares` gives a dimension are reduced into shares along it; the others are kept whole. Parameters that are
    `frozen` come in beside the others: of what a function of shards closes over, scans save a copy for the backward pass.
    """
    replicas = layout.size("data")

    def averaged(gradients: Any) -> Any:
        def reduced(gradient: jax.Array, dimension: int) -> jax.Array:
            total: jax.Array
            gradient = gradient.astype(dtype)  # of parameters in half precision, it is in theirs
            if dimension == WHOLE:
                total = jax.lax.psum(gradient, "data")
            else:
                shape = list(gradient.shape)
                shape[dimension] = filled(shape[dimension], replicas)
                gradient = with_fill(gradient, tuple(shape))
                total = jax.lax.psum_scatter(gradient, "data", scatter_dimension=dimension, tiled=True)
            return total / replicas

        return jax.tree.map(reduced, gradients, shares)

    def apart(params: Any, batch: Any, frozen: Any) -> tuple[Any, Any]:
        value, grads = _mean(
            _beside(loss, frozen), params, batch, accumulate, dtype, averaged if each else None, extras=extras
        )
        value = jax.tree.map(lambda v: jax.lax.psum(v, "data") / replicas, value)
        return value, grads if each else averaged(grads)

    run = jax.shard_map(
        apart,
        mesh=layout.mesh,
        axis_names={"data"},
        in_specs=(P(), P("data") if accumulate == 1 else P(None, "data"), P()),
        out_specs=(P(), jax.tree.map(lambda d: P() if d == WHOLE else P(*(None,) * d, "data"), shares)),
        check_vma=False,
    )
    found: tuple[Any, Any] = run(params, batch, frozen)
    return found


def microbatched(
    layout: MeshLayout, accumulate: int, *along: Axes, **fields: tuple[tuple[int, ...], DTypeLike]
) -> dict[str, jax.ShapeDtypeStruct]:
    """Abstract data, rows of a batch split over the mesh, behind an axis of microbatches where there are several.

    `along` names the axes that split what comes after the rows.
    """
    found = {}
    for name, ((batch, *rest), dtype) in fields.items():
        if batch % accumulate:
            raise InfeasibleError(
                f"batch={batch} does not make accumulate={accumulate} equal microbatches", fix="change one of them"
            )
        shape: tuple[int, ...] = (batch // accumulate, *rest)
        if accumulate > 1:
            found[name] = layout.struct((accumulate, *shape), dtype, None, BATCH, *along)
        else:
            found[name] = layout.struct(shape, dtype, BATCH, *along)
    return found


def token_batch(layout: MeshLayout, batch: int, seq: int, *, accumulate: int = 1) -> dict[str, jax.ShapeDtypeStruct]:
    """Tokens and the targets they predict, one row per sequence, split by position over "context"."""
    rows = ((batch, seq), jnp.int32)
    return microbatched(layout, accumulate, "context", tokens=rows, targets=rows)
