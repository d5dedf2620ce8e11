"""GPT cut into pipeline parts: forward, backward, weight-gradient and update programs as plain JAX functions.

What passes between programs is an argument or a result with a shape of its own: a part's output `y`, what its forward
pass leaves for the backward pass (`saved`: the input of every layer, from which the layer is computed again), the
gradient `dy` that comes back, and the sum of gradients, which the backward pass adds to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from meshcast.zoo.layers.blocks import block, block_weights
from meshcast.zoo.layers.pieces import causal_attention, cross_entropy, embed, layer_norm
from meshcast.zoo.optimizers import adamw, adamw_state
from meshcast.zoo.program import jit_options
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

Target = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model, and the part of it and of the batch that one stage works on."""

    dim: int
    heads: int
    layers: int  # of one part
    vocab: int
    seq: int
    microbatch: int  # sequences on each replica
    tensor: int  # tensor parallelism


class Programs(NamedTuple):
    """The targets of one part."""

    forward: Target
    backward: Target
    backward_input: Target
    weight: Target
    update: Target


def part(size: Size, *, first: bool = False, last: bool = False) -> Programs:
    """A part with the embedding (`first`), the loss (`last`), or layers alone."""
    layout = MeshLayout.of({"tensor": size.tensor}, axes=("data", "tensor"))

    def layer(x: jax.Array, w: Any) -> jax.Array:
        return block(x, w, layout=layout, heads=size.heads, attend=causal_attention, activation="gelu")

    shape = (size.microbatch, size.seq, size.dim)
    hidden = layout.struct(shape, jnp.bfloat16, None, None, None)
    stacked = layout.struct((size.layers, *shape), jnp.bfloat16, None, None, None, None)
    tokens = layout.struct(shape[:2], jnp.int32, None, None)

    weights: dict[str, Any] = {
        "layers": {name: w.stacked(size.layers) for name, w in block_weights(size.dim, 4 * size.dim).items()}
    }
    if first:
        weights["tokens"] = ShardedWeight((size.vocab, size.dim), ("tensor", None))
        weights["positions"] = ShardedWeight((size.seq, size.dim))
    if last:
        weights["head"] = ShardedWeight((size.vocab, size.dim), ("tensor", None))
        weights["norm"] = {"scale": ShardedWeight((size.dim,)), "bias": ShardedWeight((size.dim,))}
    params, gradients = layout.params(weights, jnp.bfloat16), layout.params(weights, jnp.float32)
    saved: dict[str, Any] = {"layers": stacked}
    saved |= {"tokens": tokens} if first else {}
    saved |= {"output": hidden, "targets": tokens} if last else {}
    weight_saved: dict[str, Any] = {"layers": stacked}
    weight_saved |= {"embedded": hidden} if first else {}

    def embedded(w: Any, tokens: jax.Array) -> jax.Array:
        return embed(w["tokens"], tokens, layout) + w["positions"]

    def loss(w: Any, x: jax.Array, targets: jax.Array) -> jax.Array:
        x = layer_norm(x, w["norm"]["scale"], w["norm"]["bias"])
        logits = layout.constrain(jnp.einsum("bsd,vd->bsv", x, w["head"]), None, None, "tensor")
        return cross_entropy(logits, targets)

    def ends(w: Any) -> Any:
        """The weights outside of the layers."""
        return {name: value for name, value in w.items() if name != "layers"}

    def forward(params: Any, x: Any, batch: Any) -> Any:
        x = embedded(params, batch) if first else x
        y, inputs = jax.lax.scan(lambda x, w: (layer(x, w), x), x, params["layers"])
        kept: dict[str, Any] = {"layers": inputs}
        kept |= {"tokens": batch} if first else {}
        kept |= {"output": y, "targets": batch} if last else {}
        return (loss(params, y, batch) if last else y), kept

    def loss_gradient(params: Any, saved: Any) -> tuple[Any, jax.Array]:
        return jax.grad(lambda w, y: loss(w, y, saved["targets"]), argnums=(0, 1))(ends(params), saved["output"])

    def backward(params: Any, saved: Any, dy: Any, gradients: Any) -> Any:
        found: dict[str, Any] = {}
        if last:
            found, dy = loss_gradient(params, saved)

        def step(dy: jax.Array, each: Any) -> tuple[jax.Array, Any]:
            w, x, total = each
            dx, dw = jax.vjp(layer, x, w)[1](dy)
            return dx, jax.tree.map(lambda t, g: t + g.astype(t.dtype), total, dw)

        dx, layers = jax.lax.scan(step, dy, (params["layers"], saved["layers"], gradients["layers"]), reverse=True)
        if first:
            (found,) = jax.vjp(lambda w: embedded(w, saved["tokens"]), ends(params))[1](dx)
        others = jax.tree.map(lambda t, g: t + g.astype(t.dtype), ends(gradients), found)
        return (None if first else dx), {"layers": layers, **others}

    def backward_input(params: Any, saved: Any, dy: Any) -> Any:
        if last:
            dy = loss_gradient(params, saved)[1]

        def step(dy: jax.Array, each: Any) -> tuple[jax.Array, jax.Array]:
            w, x = each
            return jax.vjp(lambda x: layer(x, w), x)[1](dy)[0], dy

        dx, dys = jax.lax.scan(step, dy, (params["layers"], saved["layers"]), reverse=True)
        return (None, {"layers": dys, "embedded": dx}) if first else (dx, {"layers": dys})

    def weight(params: Any, saved: Any, weight_saved: Any, gradients: Any) -> Any:
        def step(_: None, each: Any) -> tuple[None, Any]:
            w, x, dy, total = each
            (dw,) = jax.vjp(lambda w: layer(x, w), w)[1](dy)
            return None, jax.tree.map(lambda t, g: t + g.astype(t.dtype), total, dw)

        inputs = (params["layers"], saved["layers"], weight_saved["layers"], gradients["layers"])
        _, layers = jax.lax.scan(step, None, inputs)
        found: dict[str, Any] = loss_gradient(params, saved)[0] if last else {}
        if first:
            (found,) = jax.vjp(lambda w: embedded(w, saved["tokens"]), ends(params))[1](weight_saved["embedded"])
        others = jax.tree.map(lambda t, g: t + g.astype(t.dtype), ends(gradients), found)
        return {"layers": layers, **others}

    def update(params: Any, gradients: Any, opt_state: Any) -> Any:
        """AdamW on fp32 weights; the bf16 ones are copies of them."""
        master, state = adamw(opt_state["master"], gradients, opt_state["adamw"])
        return jax.tree.map(lambda p, m: m.astype(p.dtype), params, master), {"master": master, "adamw": state}

    x, batch = None if first else hidden, tokens if first or last else None
    dy = None if last else hidden
    dx, y = None if first else hidden, layout.struct((), jnp.float32) if last else hidden
    opt_state = {"master": gradients, "adamw": adamw_state(gradients)}

    def target(fn: Callable[..., Any], args: tuple[Any, ...], results: Any, donate: tuple[int, ...] = ()) -> Target:
        return lambda: (fn, args, jit_options(layout, donate=donate, results=results))

    return Programs(
        forward=target(forward, (params, x, batch), (y, saved)),
        backward=target(backward, (params, saved, dy, gradients), (dx, gradients), (3,)),
        backward_input=target(backward_input, (params, saved, dy), (dx, weight_saved)),
        weight=target(weight, (params, saved, weight_saved, gradients), gradients, (3,)),
        update=target(update, (params, gradients, opt_state), (params, opt_state), (0, 2)),
    )
