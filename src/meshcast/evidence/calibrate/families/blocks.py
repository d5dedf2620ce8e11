"""Transformer layers and other pieces of language and recommendation models, forward and gradient.

A block's kernels are the fusions that whole models consist of; a row holds every one of them by instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import LIBRARY, Indices, ProbeBody, ProbeChoices, Settings
from meshcast.zoo import attention, causal_mask, layer_norm, rms_norm, rotary

COUNT = 90
MOST_FLOPS = 8e12
Spec = jax.ShapeDtypeStruct


def gpt_layer(x: Any, w: dict[str, Any], head: int) -> Any:
    """A pre-norm layer with biases and GELU."""
    batch, length, dim = x.shape
    h = layer_norm(x, w["scale1"], w["bias1"])
    qkv = h @ w["qkv"] + w["qkv_bias"]
    q, k, v = (part.reshape(batch, length, dim // head, head) for part in jnp.split(qkv, 3, axis=-1))
    x = x + attention(q, k, v, causal_mask(length)).reshape(x.shape) @ w["out"] + w["out_bias"]
    h = layer_norm(x, w["scale2"], w["bias2"])
    return x + jax.nn.gelu(h @ w["up"] + w["up_bias"]) @ w["down"] + w["down_bias"]


def llama_layer(x: Any, w: dict[str, Any], head: int) -> Any:
    """A pre-norm layer with rotary embedding, shared keys and a gated feed-forward."""
    batch, length, _ = x.shape
    places = jnp.arange(length)
    h = rms_norm(x, w["scale1"])
    q, k, v = (jnp.einsum("bsd,de->bse", h, w[name]).reshape(batch, length, -1, head) for name in ("q", "k", "v"))
    q, k = rotary(q, places, theta=10000.0), rotary(k, places, theta=10000.0)
    x = x + attention(q, k, v, causal_mask(length)).reshape(batch, length, -1) @ w["out"]
    h = rms_norm(x, w["scale2"])
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def moe_layer(x: Any, w: dict[str, Any], _: int) -> Any:
    """Two of the experts for each token, gathered by capacity: routing, dispatch, products, return."""
    tokens, dim = x.shape[0] * x.shape[1], x.shape[2]
    flat = x.reshape(tokens, dim)
    experts = w["up"].shape[0]
    capacity = max(8, 2 * tokens // experts)
    gates, chosen = jax.lax.top_k(jax.nn.softmax((flat @ w["router"]).astype(jnp.float32)), 2)
    places = jnp.cumsum(jax.nn.one_hot(chosen.reshape(-1), experts, dtype=jnp.int32), axis=0)
    place = jnp.take_along_axis(places, chosen.reshape(-1, 1), axis=1)[:, 0] - 1
    slots = chosen.reshape(-1) * capacity + jnp.minimum(place, capacity - 1)
    sent = jnp.zeros((experts * capacity, dim), x.dtype).at[slots].set(jnp.repeat(flat, 2, axis=0))
    h = jax.nn.silu(jnp.einsum("ecd,edf->ecf", sent.reshape(experts, capacity, dim), w["up"]))
    back = jnp.einsum("ecf,efd->ecd", h, w["down"]).reshape(-1, dim)[slots]
    return (back.reshape(tokens, 2, dim) * gates[..., None].astype(x.dtype)).sum(1).reshape(x.shape)


def mlp(x: Any, w: dict[str, Any], _: int) -> Any:
    """Three dense layers."""
    h = jax.nn.relu(x @ w["up"] + w["up_bias"])
    h = jax.nn.relu(h @ w["middle"] + w["middle_bias"])
    return h @ w["down"] + w["down_bias"]


_LAYERS: dict[str, Callable[[Any, dict[str, Any], int], Any]] = {
    "gpt": gpt_layer,
    "llama": llama_layer,
    "moe": moe_layer,
    "mlp": mlp,
}


def _weights(op: str, d: int, kv: int) -> dict[str, tuple[int, ...]]:
    if op == "gpt":
        shapes: dict[str, tuple[int, ...]] = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
        vectors = {"scale1": d, "bias1": d, "scale2": d, "bias2": d, "qkv_bias": 3 * d, "out_bias": d}
        return shapes | {k: (n,) for k, n in (vectors | {"up_bias": 4 * d, "down_bias": d}).items()}
    if op == "llama":
        f = -(-8 * d // 3 // 256) * 256
        kinds = {"q": (d, d), "k": (d, kv), "v": (d, kv), "out": (d, d), "gate": (d, f), "up": (d, f), "down": (f, d)}
        return kinds | {"scale1": (d,), "scale2": (d,)}
    if op == "moe":
        return {"router": (d, 8), "up": (8, d, 2 * d), "down": (8, 2 * d, d)}
    return {"up": (d, 4 * d), "middle": (4 * d, 2 * d), "down": (2 * d, d)} | {
        "up_bias": (4 * d,),
        "middle_bias": (2 * d,),
        "down_bias": (d,),
    }


def _lstm(b: int, s: int, d: int, dtype: Any, grad: int) -> ProbeBody:
    """A recurrence of `s` steps."""

    def run(weights: Any, inputs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            hidden, cell = carry
            gates = jnp.concatenate([x, hidden], -1) @ weights
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        zeros = jnp.zeros((b, d), dtype)
        return jax.lax.scan(step, (zeros, zeros), inputs)[1]

    args = (Spec((2 * d, 4 * d), dtype), Spec((s, b, d), dtype))
    if not grad:
        return ProbeBody(function=run, args=args, flops=16.0 * s * b * d * d)
    return ProbeBody(
        function=lambda w, x, g: jax.vjp(run, w, x)[1](g),
        args=(*args, Spec((s, b, d), dtype)),
        flops=48.0 * s * b * d * d,
    )


def _interaction(b: int, s: int, d: int, dtype: Any, grad: int) -> ProbeBody:
    """Bags of `s` tables of embeddings, pairwise products of the features."""
    rows, pool, features = 100_000, 4, min(s, 26)

    def run(tables: Any, dense: Any, indices: Any) -> Any:
        bags = [jnp.take(table, indices[:, i], axis=0).sum(1) for i, table in enumerate(tables)]
        stacked = jnp.stack([dense, *bags], axis=1)
        pairs = jnp.einsum("bnd,bmd->bnm", stacked, stacked)
        first, second = jnp.tril_indices(features + 1, -1)
        return jnp.concatenate([dense, pairs[:, first, second]], axis=-1)

    tables = [Spec((rows, d), dtype)] * features
    args = (tables, Spec((b, d), dtype), Spec((b, features, pool), jnp.int32))
    drawn = {features + 1: Indices(below=rows)}
    if not grad:
        return ProbeBody(function=run, args=args, indices=drawn, flops=2.0 * b * features**2 * d)
    width = d + features * (features + 1) // 2

    def gradient(tables: Any, dense: Any, indices: Any, cotangent: Any) -> Any:
        return jax.vjp(lambda t, x: run(t, x, indices), tables, dense)[1](cotangent)

    return ProbeBody(
        function=gradient, args=(*args, Spec((b, width), dtype)), indices=drawn, flops=6.0 * b * features**2 * d
    )


def build(
    op: str, b: int, s: int, d: int, grad: int, head: int = 64, shared: int = 1, dtype: str = "bfloat16"
) -> ProbeBody:
    """A layer of width `d` on `b` sequences of `s`; `grad` for its gradient, `adam` steps for the MLP."""
    kind = jnp.dtype(dtype)
    if op == "lstm":
        return _lstm(b, s, d, kind, grad)
    if op == "interaction":
        return _interaction(b, s, d, kind, grad)
    kv = max(head, d // shared // head * head)
    weights = {name: Spec(shape, kind) for name, shape in _weights(op, d, kv).items()}
    x = Spec((b, s, d), kind)
    layer = _LAYERS[op]
    flops = 2.0 * b * s * sum(w.size / (4 if op == "moe" else 1) for w in weights.values()) * (3 if grad else 1)
    if not grad:
        return ProbeBody(function=lambda x, w: layer(x, w, head), args=(x, weights), flops=flops)

    def gradient(x: Any, w: Any, cotangent: Any) -> Any:
        return jax.vjp(lambda x, w: layer(x, w, head), x, w)[1](cotangent)

    if op != "mlp":
        return ProbeBody(function=gradient, args=(x, weights, x), flops=flops)

    def step(weights: Any, first: Any, second: Any, x: Any, cotangent: Any) -> Any:
        slopes = jax.tree.map(lambda g: g.astype(jnp.float32), gradient(x, weights, cotangent)[1])
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, second, slopes)
        moved = jax.tree.map(
            lambda w, m, v: (w - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(w.dtype), weights, first, second
        )
        return moved, first, second

    moments = {name: Spec(w.shape, jnp.float32) for name, w in weights.items()}
    return ProbeBody(function=step, args=(weights, moments, moments, x, x), donate=(0, 1, 2), flops=flops)


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("blocks/1")
    made = 0
    while made < COUNT:
        op = draw.pick(("gpt",) * 5 + ("llama",) * 5 + ("moe", "mlp", "mlp", "lstm", "interaction"))
        grad = draw.pick((0, 0, 1))
        d = draw.pick((256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192))
        b, s = draw.pick((1, 1, 2, 4, 8, 16)), draw.pick((128, 256, 512, 1024, 2048))
        settings: Settings = {"op": op, "b": b, "s": s, "d": d, "grad": grad}
        if op in ("gpt", "llama"):
            settings["head"] = draw.pick((64, 128))
            if op == "llama":
                settings["shared"] = draw.pick((1, 2, 4)) if d % 512 == 0 else 1
        elif op == "lstm":
            settings.update(b=draw.pick((8, 32, 64, 128)), s=draw.pick((4, 8, 16)), d=draw.pick((256, 512, 1024)))
        elif op == "interaction":
            settings.update(b=draw.pick((256, 1024, 2048, 8192)), s=draw.pick((8, 16, 26)), d=draw.pick((16, 64, 128)))
        elif op == "moe":
            settings["d"] = draw.pick((256, 512, 1024, 2048))
        if draw.chance(0.2):
            settings["dtype"] = "float32"
        scores = b * s * s * (d // 64)
        if op in ("gpt", "llama") and (24.0 * b * s * d * d * (3 if grad else 1) > MOST_FLOPS or scores > 8e8):
            continue
        if draw.chance(0.75):
            settings["tune"] = LIBRARY
        made += 1
        yield settings
