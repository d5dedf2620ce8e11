"""One token with a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.plain.catalogue import BF16, F32, KEY, PROGRAMS, Call, ints, spec
from benchmarks.plain.layers import rms, rotate_half, rotate_pairs


def decoder(
    *, layers: int = 4, dim: int = 2048, heads: int = 16, groups: int = 16, hidden: int = 5632, vocab: int = 32000,
    batch: int = 8, length: int = 2048, keep: str = "list", order: str = "bshd", dtype: Any = BF16, donated: bool = True,
    sample: str = "argmax", turn: Any = rotate_half, each: bool = False,
) -> Call:  # fmt: skip
    """One token with a cache that is a list of layers, a stack that is scanned or one that is updated by layer."""
    size = dim // heads
    one = {
        "q": spec(dim, dim, dtype=dtype), "kv": spec(dim, 2 * groups * size, dtype=dtype), "o": spec(dim, dim, dtype=dtype),
        "up": spec(dim, hidden, dtype=dtype), "gate": spec(dim, hidden, dtype=dtype), "down": spec(hidden, dim, dtype=dtype),
        "n1": spec(dim, dtype=dtype), "n2": spec(dim, dtype=dtype),
    }  # fmt: skip
    shape = (batch, length, groups, size) if order == "bshd" else (batch, groups, length, size)
    cache: Any = {"k": spec(*shape, dtype=dtype), "v": spec(*shape, dtype=dtype)}
    params: Any = {
        "embed": spec(vocab, dim, dtype=dtype),
        "nf": spec(dim, dtype=dtype),
        "head": spec(dim, vocab, dtype=dtype),
    }
    many = keep != "list"
    params["layers"] = jax.tree.map(lambda p: spec(layers, *p.shape, dtype=p.dtype), one) if many else [one] * layers
    caches = jax.tree.map(lambda p: spec(layers, *p.shape, dtype=p.dtype), cache) if many else [cache] * layers

    def written(kept: Any, new: Any, at: Any) -> Any:  # new is [B, 1, G, D]
        if order == "bhsd":
            new = new.transpose(0, 2, 1, 3)
        if each:  # every sequence at a place of its own
            return jax.vmap(lambda c, n, p: lax.dynamic_update_slice(c, n, (p, 0, 0)))(kept, new, at)
        return lax.dynamic_update_slice(kept, new, (0, at, 0, 0) if order == "bshd" else (0, 0, at, 0))

    def attended(q: Any, c: Any, at: Any) -> Any:  # q is [B, 1, H, D]
        q = q.reshape(batch, groups, heads // groups, size)
        keys = "bsgd" if order == "bshd" else "bgsd"
        scores = jnp.einsum(f"bghd,{keys}->bghs", q, c["k"]).astype(F32) * size**-0.5
        seen = jnp.arange(length) <= (at[:, None, None, None] if each else at)
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1).astype(dtype)
        return jnp.einsum(f"bghs,{keys}->bghd", weights, c["v"]).reshape(batch, dim)

    def block(x: Any, p: Any, c: Any, at: Any) -> Any:
        y = rms(x, p["n1"])
        q = turn((y @ p["q"]).reshape(batch, 1, heads, size), at[:, None] if each else at[None])
        k, v = jnp.split(y @ p["kv"], 2, -1)
        k = turn(k.reshape(batch, 1, groups, size), at[:, None] if each else at[None])
        c = {"k": written(c["k"], k, at), "v": written(c["v"], v.reshape(batch, 1, groups, size), at)}
        x = x + attended(q, c, at) @ p["o"]
        y = rms(x, p["n2"])
        return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"], c

    def step(params: Any, caches: Any, token: Any, at: Any, key: Any) -> Any:
        x = params["embed"][token]
        if keep == "list":
            new = []
            for p, c in zip(params["layers"], caches, strict=True):
                x, c = block(x, p, c, at)
                new.append(c)
        elif keep == "scanned":
            x, new = lax.scan(lambda x, pc: block(x, *pc, at), x, (params["layers"], caches))
        else:  # carried

            def turned(i: Any, state: Any) -> Any:
                x, caches = state
                p, c = (
                    jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, i, 0, False), t)
                    for t in (params["layers"], caches)
                )
                x, c = block(x, p, c, at)
                return x, jax.tree.map(lambda a, b: lax.dynamic_update_index_in_dim(a, b, i, 0), caches, c)

            x, new = lax.fori_loop(0, layers, turned, (x, caches))
        logits = (rms(x, params["nf"]) @ params["head"]).astype(F32)
        if sample == "argmax":
            return jnp.argmax(logits, -1), new
        if sample == "top":
            best, where = lax.top_k(logits, 50)
            drawn = jax.random.categorical(key, best / 0.8)
            return jnp.take_along_axis(where, drawn[:, None], -1)[:, 0], new
        return jax.random.categorical(key, logits / 0.8), new

    return step, (params, caches, ints(batch), ints(batch) if each else ints(), KEY), (1,) if donated else ()


DECODING: dict[str, dict[str, Any]] = {
    "decode_list_mha": {},
    "decode_list_gqa_bhsd": {"groups": 4, "order": "bhsd", "sample": "top"},
    "decode_carried_mha": {"keep": "carried"},
    "decode_carried_mha_bhsd": {"keep": "carried", "order": "bhsd", "batch": 4},
    "decode_carried_gqa": {"keep": "carried", "groups": 4, "sample": "categorical"},
    "decode_scanned_mha": {"keep": "scanned", "turn": rotate_pairs},
    "decode_scanned_gqa_kept": {"keep": "scanned", "groups": 2, "donated": False, "batch": 32},
    "decode_list_each": {"groups": 4, "each": True, "batch": 16},
    "decode_carried_wide": {"keep": "carried", "dim": 4096, "heads": 32, "groups": 32, "batch": 4, "layers": 3},
    "decode_carried_heads": {"keep": "carried", "order": "bhsd", "dim": 1024, "length": 1024},
    "decode_carried_batch": {"keep": "carried", "groups": 4, "batch": 32, "dim": 1024, "sample": "top"},
    "decode_list_heads": {"order": "bhsd", "batch": 2, "length": 4096},
    "decode_list_small": {"dim": 768, "heads": 12, "groups": 12, "hidden": 3072, "length": 1024, "donated": False},
    "decode_list_f32": {"dtype": F32, "dim": 1024, "batch": 4, "length": 1024, "donated": False},
}
for _name, _style in DECODING.items():
    PROGRAMS[_name] = partial(decoder, **_style)
