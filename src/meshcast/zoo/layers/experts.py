"""Feed-forward layers: gated, and of routed experts with a fixed capacity beside experts that every token passes.

Dispatch "einsum" moves tokens to experts and back by products with one-hot matrices (GShard, Lepikhin 2020), "gather" by
the indices themselves, which many small experts need: the one-hot products grow with experts x capacity. The batch is
split over "data", "fsdp" and "expert", the experts over "expert": moving tokens to them and back is the all-to-all
that two constraints imply. Over "tensor" either every expert's width is split, and all of its devices have all tokens, or
the experts are (`whole_experts`), and each device moves the tokens of its share of the positions.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import UsageError
from meshcast.zoo.layers.pieces import ACTIVATIONS, BATCH, gate_with
from meshcast.zoo.layers.products import product, products
from meshcast.zoo.layers.saving import EXCHANGED, kept
from meshcast.zoo.scopes import ALIKE_SCOPE, COPIES_SCOPE
from meshcast.zoo.shapes.decoder import DecoderConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

HOME = ("data", "fsdp", "context")
"""The axes that still split the tokens once they are at their experts."""
TOKENS = ("data", "fsdp", "context", "expert")
"""The axes that split groups of tokens: those of the batch and of the positions."""


def _tokens(config: DecoderConfig) -> tuple[str, ...]:
    """The axes that split groups of tokens at home."""
    return (*TOKENS, "tensor") if config.whole_experts else TOKENS


def _experts_over(config: DecoderConfig) -> tuple[str, ...]:
    """The axes that share out whole experts."""
    return ("expert", "tensor") if config.whole_experts else ("expert",)


def _width_over(config: DecoderConfig) -> str | None:
    """The axis that splits an expert's width."""
    return None if config.whole_experts else "tensor"


def gated_weights(
    dim: int, ffn: int, *, prefix: str = "", gate: bool = True, bias: bool = False
) -> dict[str, ShardedWeight]:
    """The weights of a feed-forward layer, with a gate or without, its width split over "tensor"."""
    biases = {
        f"{prefix}{name}_bias": ShardedWeight((ffn,), ("tensor",)) for name in (("gate", "up") if gate else ("up",))
    }
    return {
        **(biases | {f"{prefix}ffn_out_bias": ShardedWeight((dim,))} if bias else {}),
        **({f"{prefix}gate": ShardedWeight((dim, ffn), ("fsdp", "tensor"))} if gate else {}),
        f"{prefix}up": ShardedWeight((dim, ffn), ("fsdp", "tensor")),
        f"{prefix}down": ShardedWeight((ffn, dim), ("tensor", "fsdp")),
    }


def routed_weights(config: DecoderConfig) -> dict[str, ShardedWeight]:
    """The router's, the experts' and the shared experts' weights of one layer."""
    dim, ffn = config.dim, config.routed_ffn
    over, width = _experts_over(config), _width_over(config)
    found = {
        "router": ShardedWeight((dim, config.experts)),
        "gate": ShardedWeight((config.experts, dim, ffn), (over, "fsdp", width)),
        "up": ShardedWeight((config.experts, dim, ffn), (over, "fsdp", width)),
        "down": ShardedWeight((config.experts, ffn, dim), (over, width, "fsdp")),
    }
    if config.biased_router:
        found["router_bias"] = ShardedWeight((config.experts,))
    if config.expert_bias:
        found["router_offset"] = ShardedWeight((config.experts,))
        found |= {f"{name}_bias": ShardedWeight((config.experts, ffn), (over, width)) for name in ("gate", "up")}
        found["down_bias"] = ShardedWeight((config.experts, dim), (over, None))
    if config.shared_ffn:
        found |= gated_weights(dim, config.shared_ffn, prefix="shared_")
    if config.shared_gate:
        found["shared_weight"] = ShardedWeight((dim, 1))
    return found


def gated(
    h: jax.Array, w: dict[str, jax.Array], *, activation: str, layout: MeshLayout, prefix: str = "", held: bool = False
) -> jax.Array:
    """The gated feed-forward half of a layer on normalised activations, without its residual sum.

    `held`: the activations are kept for the backward pass already.
    """
    names = [f"{prefix}{name}" for name in ("gate", "up")]
    held = held or layout.sequence_parallel
    made = products(
        "bsd,df->bsf", h, [w[name] for name in names], layout, over=(BATCH, "context", None), held=held, number=5
    )
    made = [y + w[f"{name}_bias"] if f"{name}_bias" in w else y for name, y in zip(names, made, strict=True)]
    gate, up = (layout.constrain(kept(each), BATCH, "context", "tensor") for each in made)
    y, over = gate_with(activation, gate, up), (BATCH, "context", "tensor")
    return product("bsf,fd->bsd", y, w[f"{prefix}down"], layout, over=over, number=7)


def dense(h: jax.Array, w: dict[str, jax.Array], *, config: DecoderConfig, layout: MeshLayout) -> jax.Array:
    """The feed-forward half of a layer without experts, gated where the model's are, without its last bias."""
    if config.gated:
        return gated(h, w, activation=config.activation, layout=layout)
    up = product(
        "bsd,df->bsf", h, w["up"], layout, over=(BATCH, "context", None), held=layout.sequence_parallel, number=5
    )
    up = layout.constrain(kept(up + w["up_bias"] if config.ffn_bias else up), BATCH, "context", "tensor")
    y, over = ACTIVATIONS[config.activation](up), (BATCH, "context", "tensor")
    return product("bsf,fd->bsd", y, w["down"], layout, over=over, number=6)


def _routing(layout: MeshLayout) -> Any:
    """A scope for products that choose experts and move tokens: tensor parallelism does not split them."""
    return jax.named_scope(f"{ALIKE_SCOPE}{layout.size('tensor')}")


def choose(logits: jax.Array, bias: jax.Array | None, active: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gates (G, S, K) and experts (G, S, K) of router logits (G, S, E), and their probabilities.

    With a bias, scores are sigmoids and the bias takes part in choosing only (DeepSeek-V3).
    """
    if bias is None:
        probabilities = jax.nn.softmax(logits, axis=-1)
        gates, chosen = jax.lax.top_k(probabilities, active)
    else:
        probabilities = jax.nn.sigmoid(logits)
        _, chosen = jax.lax.top_k(probabilities + bias, active)
        gates = jnp.take_along_axis(probabilities, chosen, axis=-1)
    return gates / jnp.sum(gates, axis=-1, keepdims=True), chosen, probabilities


def ranks(choice: jax.Array) -> jax.Array:
    """The slot (G, S, K) of each choice, one-hot (G, S, K, E): its rank among the group's tokens that chose the expert.

    First choices come before second ones.
    """
    groups, length, active, experts = choice.shape
    ordered = choice.swapaxes(1, 2).reshape(groups, active * length, experts)
    rank = (jnp.cumsum(ordered, axis=1) - ordered).reshape(groups, active, length, experts).swapaxes(1, 2)
    return jnp.sum(rank * choice, axis=-1).astype(jnp.int32)


def balance_loss(choice: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Switch's loss: E * sum_e (share of tokens) * (mean probability)."""
    share = jnp.mean(choice, axis=(0, 1, 2))
    return choice.shape[-1] * jnp.sum(share * jnp.mean(probabilities, axis=(0, 1)))


def grouped(h: jax.Array, config: DecoderConfig, layout: MeshLayout) -> jax.Array:
    """Tokens (G, S, dim) that compete with each other: neighbours of a sequence, or one step's tokens of a shard."""
    batch, length, dim = h.shape
    if length > 1:
        # Tokens that leave from shares of the positions compete within their share.
        shares = layout.size("tensor") if config.whole_experts else 1
        size = min(config.group, max(1, length // shares))
        if length % size:
            raise UsageError(
                f"seq={length} is no multiple of the routing group of {size} tokens", where="--set", fix="set group"
            )
    else:
        size = batch // layout.size(BATCH)
    over = _tokens(config)
    return layout.constrain(h.reshape(-1, size, dim), over, None, None)


def seen_by_router(x: jax.Array, config: DecoderConfig, layout: MeshLayout) -> jax.Array:
    """Normalised activations as a routed layer reads them; tokens of whole experts leave from shares of the positions."""
    return layout.constrain(kept(x), *layout.residual) if config.whole_experts else layout.whole(x)


def routed(
    h: jax.Array, w: dict[str, jax.Array], *, config: DecoderConfig, layout: MeshLayout
) -> tuple[jax.Array, jax.Array | None]:
    """The routed feed-forward half of a layer (B, S, dim), without its residual sum, and its balance loss if it has one."""
    h = h if layout.sequence_parallel else layout.constrain(kept(h), BATCH, "context", None)
    tokens = grouped(h, config, layout)
    with _routing(layout):
        logits = (tokens @ w["router"]).astype(jnp.float32)
    logits = kept(logits + w["router_offset"].astype(jnp.float32) if config.expert_bias else logits)
    gates, chosen, probabilities = choose(logits, w.get("router_bias"), config.active)
    chosen = kept(chosen)
    choice = jax.nn.one_hot(chosen, config.experts, dtype=jnp.float32)
    if _is_by_token(tokens, config, layout):
        y = _by_token(tokens, w, gates, chosen, config)
    else:
        capacity = math.ceil(config.active * tokens.shape[1] * config.capacity_factor / config.experts)
        move = {"einsum": _by_products, "gather": _by_indices}[config.dispatch]
        y = move(tokens, w, gates, chosen, choice, capacity, config, layout)
    y = y.reshape(h.shape)
    if config.shared_ffn:
        seen = layout.whole(h) if config.whole_experts else h
        shared = gated(seen, w, activation=config.activation, layout=layout, prefix="shared_", held=True)
        shared = layout.constrain(shared, *layout.residual) if config.whole_experts else shared
        y = y + (jax.nn.sigmoid(h @ w["shared_weight"]) * shared if config.shared_gate else shared)
    return y, balance_loss(choice, probabilities) if config.balance else None


def _is_by_token(tokens: jax.Array, config: DecoderConfig, layout: MeshLayout) -> bool:
    """Whether a device's tokens read the weights of their own experts, which takes fewer bytes than reading all experts.

    Choosing weights is a gather: they are read, written and read again by the product, three times for each of a token's
    experts, where capacity reads every expert once: 3 T K < E.
    """
    choices = tokens.shape[0] * tokens.shape[1] * config.active // layout.size(TOKENS)
    return 3 * choices < config.experts and layout.size(_experts_over(config)) == 1


def _by_token(
    tokens: jax.Array, w: dict[str, jax.Array], gates: jax.Array, chosen: jax.Array, config: DecoderConfig
) -> jax.Array:
    """Each token with the weights of its own experts."""

    def own(name: str) -> jax.Array:
        return jnp.take(w[name], chosen, axis=0, mode="clip")

    gate, up = (jnp.einsum("gsd,gskdf->gskf", tokens, own(name)) for name in ("gate", "up"))
    if config.expert_bias:
        gate, up = gate + own("gate_bias"), up + own("up_bias")
    y, gates = gate_with(config.activation, gate, up), gates.astype(tokens.dtype)
    found = jnp.einsum("gskf,gskfd,gsk->gsd", y, own("down"), gates)
    return found + jnp.einsum("gskd,gsk->gsd", own("down_bias"), gates) if config.expert_bias else found


def _by_products(
    tokens: jax.Array, w: dict[str, jax.Array], gates: jax.Array, chosen: jax.Array, choice: jax.Array,
    capacity: int, config: DecoderConfig, layout: MeshLayout,
) -> jax.Array:  # fmt: skip
    """Dispatch and combine by one-hot products; what is past an expert's capacity is dropped."""
    slot = jax.nn.one_hot(ranks(choice), capacity, dtype=jnp.float32)
    with _routing(layout):
        combine = jnp.einsum("gske,gskc->gsec", choice * gates[..., None], slot)
    combine = layout.constrain(kept(combine.astype(tokens.dtype)), _tokens(config), None, None, None)
    dispatch = (combine > 0).astype(tokens.dtype)
    with _routing(layout):
        slots = jnp.einsum("gsec,gsd->egcd", dispatch, tokens)
    y = _experts(slots, w, config, layout)
    with _routing(layout):
        return jnp.einsum("gsec,egcd->gsd", combine, kept(y))


def _by_indices(
    tokens: jax.Array, w: dict[str, jax.Array], gates: jax.Array, chosen: jax.Array, choice: jax.Array,
    capacity: int, config: DecoderConfig, layout: MeshLayout,
) -> jax.Array:  # fmt: skip
    """Dispatch and combine by gathers within each group; what is past an expert's capacity is dropped."""
    groups, length, dim = tokens.shape
    slots = config.experts * capacity
    rank = ranks(choice)
    slot = kept(jnp.where(rank < capacity, chosen * capacity + rank, slots))

    def sources(slot: jax.Array) -> jax.Array:
        origin = jnp.arange(slot.size).reshape(slot.shape)
        return jnp.full((slots,), slot.size, jnp.int32).at[slot].set(origin, mode="drop")

    # Of each slot: a token's choice, or none.
    source = kept(layout.constrain(jax.vmap(sources)(slot), _tokens(config), None))
    picked = slot.reshape(groups, length * config.active)
    move = _rearranged(layout, _tokens(config))

    def at_slots(y: jax.Array) -> jax.Array:
        return y.reshape(groups, config.experts, capacity, -1).swapaxes(0, 1)

    # Gates go along and weigh what is multiplied by `down`, as Megatron has it: neither the experts' results nor a second
    # exchange of them is needed for the gates' gradient.
    weights = move(gates.astype(tokens.dtype).reshape(groups, -1, 1), source, picked[..., None])
    y = at_slots(move(tokens, source // config.active, slot))
    y = _experts(y, w, config, layout, gates=at_slots(weights)).swapaxes(0, 1).reshape(groups, slots, dim)
    y = move(y, picked, source[..., None]).reshape(groups, length, config.active, dim)
    return jnp.sum(y, axis=2, dtype=jnp.float32).astype(tokens.dtype)


def _rearranged(layout: MeshLayout, over: tuple[str, ...]) -> Any:
    """Rows (G, N, dim) by an index (G, M), and their gradient by the index (G, N, K) of the results each row became.

    Differentiation would add the gradients up where rows came from, one atomic update a number. Whoever rearranges tokens
    knows the way back: Megatron's and MaxText's own gradients are gathers too. Indices that reach past the rows give zeros.
    """

    @jax.vmap
    def taken(rows: jax.Array, index: jax.Array) -> jax.Array:
        return jnp.take(rows, index, axis=0, mode="fill", fill_value=0)

    def moved(rows: jax.Array, index: jax.Array, back: jax.Array) -> jax.Array:
        return layout.constrain(taken(rows, index), over, None, None)

    def backward(back: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None, None]:
        found = taken(layout.constrain(gradient, over, None, None), back)
        summed = found[:, :, 0] if back.shape[-1] == 1 else jnp.sum(found, axis=2, dtype=jnp.float32)
        return layout.constrain(summed.astype(gradient.dtype), over, None, None), None, None

    function = jax.custom_vjp(moved)
    function.defvjp(lambda rows, index, back: (moved(rows, index, back), back), backward)
    return function


def _experts(
    y: jax.Array, w: dict[str, jax.Array], config: DecoderConfig, layout: MeshLayout, *, gates: jax.Array | None = None
) -> jax.Array:
    """Every expert on its slots (E, G, C, dim), at the experts' devices and back home, weighed by gates (E, G, C, 1) if given."""
    owners, width = _experts_over(config), _width_over(config)

    def exchange(y: jax.Array, *, out: bool) -> jax.Array:
        home, away = (None, _tokens(config), None, None), (owners, HOME, None, None)
        first, last = (home, away) if out else (away, home)
        with jax.named_scope(f"{COPIES_SCOPE}{config.active}"):
            return layout.constrain(layout.constrain(y, *first), *last)

    y = exchange(y, out=True)
    weights = None if gates is None else kept(exchange(gates, out=True), EXCHANGED)

    def biased(y: jax.Array, name: str) -> jax.Array:
        return y + w[f"{name}_bias"][:, None, None] if config.expert_bias else y

    over = (owners, HOME, None, None)
    made = products("egcd,edf->egcf", y, (w["gate"], w["up"]), layout, over=over, number=5, name=EXCHANGED)
    gate, up = (
        layout.constrain(kept(biased(each, name)), owners, HOME, None, width)
        for name, each in zip(("gate", "up"), made, strict=True)
    )
    y = gate_with(config.activation, gate, up)
    y = layout.constrain(y if weights is None else y * weights, owners, HOME, None, width)
    y = product("egcf,efd->egcd", y, w["down"], layout, over=(owners, HOME, None, width), number=7)
    if config.expert_bias:
        bias = w["down_bias"][:, None, None]
        y = y + (bias if weights is None else bias * weights)
    return exchange(y, out=False)
