"""Experts and graphs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.plain.catalogue import BF16, F32, PROGRAMS, Call, cast, ints, spec
from benchmarks.plain.layers import rms, token_loss
from benchmarks.plain.optimizers import training


def mixture(how: str) -> Call:
    """A layer of experts: dispatch by one-hot products, or sorted tokens and ragged products."""
    dim, hidden, experts, top, tokens = 1024, 2048, 8, 2, 4096
    capacity = tokens * top // experts * 5 // 4
    params = {
        "router": spec(dim, experts),
        "up": spec(experts, dim, hidden),
        "gate": spec(experts, dim, hidden),
        "down": spec(experts, hidden, dim),
        "n": spec(dim),
    }

    def layer(params: Any, x: Any) -> Any:
        y = rms(x, params["n"])
        chances = jax.nn.softmax((y @ params["router"]).astype(F32), -1)
        weights, chosen = lax.top_k(chances, top)
        weights = weights / weights.sum(-1, keepdims=True)
        if how == "one-hot":
            hot = jax.nn.one_hot(chosen, experts).reshape(-1, experts)
            place = (jnp.cumsum(hot, 0) - hot) * hot
            sent = (hot[..., None] * jax.nn.one_hot(place.sum(-1).astype(jnp.int32), capacity)[:, None]).reshape(
                tokens, top, experts, capacity
            )
            combine = jnp.einsum("tk,tkec->tec", weights, sent).astype(x.dtype)
            inside = jnp.einsum("td,tec->ecd", y, sent.sum(1).astype(x.dtype))
            h = jax.nn.silu(jnp.einsum("ecd,edf->ecf", inside, params["gate"])) * jnp.einsum(
                "ecd,edf->ecf", inside, params["up"]
            )
            out = jnp.einsum("tec,ecd->td", combine, jnp.einsum("ecf,efd->ecd", h, params["down"]))
        else:
            order = jnp.argsort(chosen.reshape(-1))
            sizes = jnp.bincount(chosen.reshape(-1), length=experts)
            inside = y[order // top]
            h = jax.nn.silu(lax.ragged_dot(inside, params["gate"], sizes)) * lax.ragged_dot(inside, params["up"], sizes)
            out = lax.ragged_dot(h, params["down"], sizes) * weights.reshape(-1)[order][:, None].astype(x.dtype)
            out = jnp.zeros_like(x).at[order // top].add(out)
        return x + out

    if how == "sorted":
        return lambda p, x: layer(cast(p, BF16), x), (params, spec(tokens, dim, dtype=BF16)), ()
    return training(
        lambda p, x, y: jnp.mean((layer(cast(p, BF16), x) - y).astype(F32) ** 2), params,
        (spec(tokens, dim, dtype=BF16),) * 2, "adam",
    )  # fmt: skip


PROGRAMS["experts_one_hot_train"] = partial(mixture, "one-hot")
PROGRAMS["experts_sorted_infer"] = partial(mixture, "sorted")


def graph(kind: str) -> Call:
    """A graph net with sums by segment, or attention over edges."""
    nodes, edges, dim, layers = 20000, 200000, 128, 3
    one = {
        "e1": spec(2 * dim, dim),
        "e2": spec(dim, dim),
        "n1": spec(2 * dim, dim),
        "n2": spec(dim, dim),
        "a": spec(dim),
    }
    params = {"in": spec(64, dim), "layers": [one] * layers, "out": spec(dim, 40)}

    def loss(params: Any, x: Any, senders: Any, receivers: Any, labels: Any) -> Any:
        x = x @ params["in"]
        for p in params["layers"]:
            if kind == "messages":
                m = jax.nn.relu(jnp.concatenate([x[senders], x[receivers]], -1) @ p["e1"]) @ p["e2"]
                got = jax.ops.segment_sum(m, receivers, nodes)
            else:
                h = x @ p["e2"]
                score = jax.nn.leaky_relu((h[senders] + h[receivers]) @ p["a"])
                high = jax.ops.segment_max(score, receivers, nodes)
                e = jnp.exp(score - high[receivers])
                total = jax.ops.segment_sum(e, receivers, nodes)
                got = jax.ops.segment_sum((e / total[receivers])[:, None] * h[senders], receivers, nodes)
            x = x + jax.nn.relu(jnp.concatenate([x, got], -1) @ p["n1"]) @ p["n2"]
        return token_loss(x @ params["out"], labels, "take")

    return training(loss, params, (spec(nodes, 64), ints(edges), ints(edges), ints(nodes)), "adam")


PROGRAMS["graph_messages"] = partial(graph, "messages")
PROGRAMS["graph_attention"] = partial(graph, "attention")
