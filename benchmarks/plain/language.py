"""Transformers in training and reading prompts."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.plain.catalogue import BF16, F32, KEY, PROGRAMS, Call, cast, ints, spec
from benchmarks.plain.layers import attend, dropout, heads_of, layer_norm, rms, rotate_half, rotate_pairs, token_loss
from benchmarks.plain.optimizers import training


def language_model(
    *, layers: int = 2, dim: int = 1024, heads: int = 16, groups: int | None = None, hidden: int = 4096, vocab: int = 16000,
    batch: int = 4, length: int = 1024, norm: str = "rms", post: bool = False, positions: str = "half", mask: str = "where",
    window: int | None = None, gated: bool = True, act: str = "silu", dtype: Any = BF16, scan: bool = False, remat: bool = False,
    drop: bool = False, tied: bool = False, loss: str = "lse", how: str = "adam", wide: bool = True, masters: bool = True,
    causal: bool = True, mode: str = "train",
) -> Call:  # fmt: skip
    """A transformer's step in the style that is asked for."""
    groups = groups or heads
    kept = F32 if masters else dtype
    size = dim // heads
    one = {
        "q": spec(dim, dim, dtype=kept), "k": spec(dim, groups * size, dtype=kept), "v": spec(dim, groups * size, dtype=kept),
        "o": spec(dim, dim, dtype=kept), "up": spec(dim, hidden, dtype=kept), "down": spec(hidden, dim, dtype=kept),
        "n1": spec(dim, dtype=kept), "n2": spec(dim, dtype=kept),
    }  # fmt: skip
    if gated:
        one["gate"] = spec(dim, hidden, dtype=kept)
    if norm == "layer":
        one |= {"b1": spec(dim, dtype=kept), "b2": spec(dim, dtype=kept), "bu": spec(hidden, dtype=kept)}
    stacked = jax.tree.map(lambda p: spec(layers, *p.shape, dtype=p.dtype), one)
    params: Any = {"embed": spec(vocab, dim, dtype=kept), "nf": spec(dim, dtype=kept)}
    params["layers"] = stacked if scan else [one] * layers
    if not tied:
        params["head"] = spec(dim, vocab, dtype=kept)
    if positions == "learned":
        params["places"] = spec(length, dim, dtype=kept)
    f = {
        "silu": jax.nn.silu,
        "gelu": jax.nn.gelu,
        "exact": partial(jax.nn.gelu, approximate=False),
        "relu": jax.nn.relu,
    }[act]

    def normed(x: Any, p: Any, which: str) -> Any:
        if norm == "rms":
            return rms(x, p["n" + which])
        return layer_norm(x, p["n" + which], p["b" + which])

    def block(x: Any, p: Any, key: Any) -> Any:
        at = jnp.arange(length)
        y = x if post else normed(x, p, "1")
        q, k, v = heads_of(y @ p["q"], heads), heads_of(y @ p["k"], groups), heads_of(y @ p["v"], groups)
        if positions in ("half", "pairs"):
            turn = rotate_half if positions == "half" else rotate_pairs
            q, k = turn(q, at), turn(k, at)
        if groups != heads:
            k, v = (jnp.repeat(each, heads // groups, 2) for each in (k, v))
        allowed = at[:, None] >= at[None, :] if causal else jnp.ones((length, length), bool)
        if window:
            allowed = allowed & (at[:, None] - at[None, :] < window)
        bias = None
        if positions == "alibi":
            bias = -(2.0 ** (-8.0 * jnp.arange(1, heads + 1) / heads))[:, None, None] * (at[:, None] - at[None, :])
        if mask == "add":
            added = jnp.where(allowed, 0.0, -1e9)
            bias = added if bias is None else bias + added
        a = attend(q, k, v, bias, allowed[None, None] if mask == "where" else None, wide)
        a = a.reshape(x.shape) @ p["o"]
        if drop:
            a = dropout(key, a)
        x = normed(x + a, p, "1") if post else x + a
        y = x if post else normed(x, p, "2")
        h = y @ p["up"]
        if norm == "layer":
            h = h + p["bu"]
        h = f(y @ p["gate"]) * h if gated else f(h)
        h = h @ p["down"]
        if drop:
            h = dropout(jax.random.fold_in(key, 1), h)
        return normed(x + h, p, "2") if post else x + h

    def logits(params: Any, tokens: Any, key: Any) -> Any:
        params = cast(params, dtype)
        x = params["embed"][tokens]
        if positions == "learned":
            x = x + params["places"]
        one_block = jax.checkpoint(block) if remat else block
        if scan:
            x, _ = lax.scan(lambda x, p: (one_block(x, p, key), None), x, params["layers"])
        else:
            keys = jax.random.split(key, layers) if drop else [key] * layers
            for p, each in zip(params["layers"], keys, strict=True):
                x = one_block(x, p, each)
        x = rms(x, params["nf"])
        return x @ (params["embed"].T if tied else params["head"])

    if mode == "infer":
        return lambda params, tokens: logits(params, tokens, None)[:, -1], (params, ints(batch, length)), ()

    def step_loss(params: Any, tokens: Any, labels: Any, key: Any) -> Any:
        return token_loss(logits(params, tokens, key), labels, loss)

    return training(step_loss, params, (ints(batch, length), ints(batch, length), KEY), how)


LANGUAGE: dict[str, dict[str, Any]] = {
    "lm_llama_train": {"how": "adamw", "groups": 4},
    "lm_llama_scan_remat": {"scan": True, "remat": True, "layers": 4, "positions": "pairs", "how": "clipped"},
    "lm_gpt2_train": {
        "norm": "layer", "positions": "learned", "gated": False, "act": "gelu", "tied": True, "drop": True, "loss": "take",
    },
    "lm_gpt2_f32": {
        "norm": "layer", "positions": "learned", "gated": False, "act": "gelu", "dtype": F32, "batch": 2, "loss": "one-hot",
        "how": "sgd", "mask": "add",
    },
    "lm_post_smooth": {"norm": "layer", "post": True, "positions": "learned", "gated": False, "act": "relu", "loss": "smooth"},
    "lm_alibi_scan": {"positions": "alibi", "mask": "add", "scan": True, "layers": 4, "norm": "layer", "gated": False},
    "lm_window_mqa": {"window": 256, "groups": 1, "length": 2048, "batch": 2, "tied": True, "how": "sgd"},
    "lm_narrow_softmax": {"wide": False, "masters": False, "how": "sgd", "positions": "pairs"},
    "lm_narrow_norm": {"wide": False, "masters": False, "norm": "layer", "gated": False, "act": "exact", "mask": "add"},
    "lm_prefill_gqa": {"mode": "infer", "groups": 4, "batch": 8, "masters": False, "layers": 3},
    "lm_prefill_scan_pairs": {"mode": "infer", "scan": True, "layers": 8, "positions": "pairs", "masters": False, "wide": False},
    "bert_mlm": {
        "norm": "layer", "post": True, "positions": "learned", "gated": False, "act": "exact", "causal": False, "batch": 16,
        "length": 512, "dim": 768, "heads": 12, "hidden": 3072, "drop": True, "loss": "take", "tied": True,
    },
}  # fmt: skip
for _name, _style in LANGUAGE.items():
    PROGRAMS[_name] = partial(language_model, **_style)
