"""State spaces, recurrent nets, translation."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.plain.catalogue import BF16, F32, PROGRAMS, Call, cast, ints, program, spec
from benchmarks.plain.layers import heads_of, layer_norm, rms, token_loss
from benchmarks.plain.optimizers import training


@program("translator_train")
def _() -> Call:
    dim, heads, batch, length, layers, vocab = 512, 8, 16, 256, 2, 16000
    att = {
        "q": spec(dim, dim),
        "k": spec(dim, dim),
        "v": spec(dim, dim),
        "o": spec(dim, dim),
        "g": spec(dim),
        "b": spec(dim),
    }
    ff = {"u": spec(dim, 2048), "bu": spec(2048), "d": spec(2048, dim), "g": spec(dim), "b": spec(dim)}
    params = {"embed": spec(vocab, dim), "enc": [[att, ff]] * layers, "dec": [[att, att, ff]] * layers}

    def attention(p: Any, x: Any, y: Any, mask: Any) -> Any:
        q, k, v = heads_of(x @ p["q"], heads), heads_of(y @ p["k"], heads), heads_of(y @ p["v"], heads)
        q, k, v = (a.transpose(0, 2, 1, 3) for a in (q, k, v))
        s = q @ k.transpose(0, 1, 3, 2) / 8.0
        w = jax.nn.softmax(jnp.where(mask, s, -1e9), -1)
        return layer_norm(x + (w @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ p["o"], p["g"], p["b"])

    def fed(p: Any, x: Any) -> Any:
        return layer_norm(x + jax.nn.relu(x @ p["u"] + p["bu"]) @ p["d"], p["g"], p["b"])

    def loss(params: Any, source: Any, target: Any, lengths: Any) -> Any:
        at = jnp.arange(length)
        seen = (at[None] < lengths[:, None])[:, None, None, :]
        f = at[:, None] / 10000.0 ** (jnp.arange(0, dim, 2) / dim)
        places = jnp.stack([jnp.sin(f), jnp.cos(f)], -1).reshape(length, dim)
        x = params["embed"][source] * dim**0.5 + places
        for a, p in params["enc"]:
            x = fed(p, attention(a, x, x, seen))
        y = params["embed"][target] * dim**0.5 + places
        for a, c, p in params["dec"]:
            y = fed(p, attention(c, attention(a, y, y, jnp.tril(jnp.ones((length, length), bool))), x, seen))
        logs = jax.nn.log_softmax(y[:, :-1] @ params["embed"].T)
        picked = jnp.take_along_axis(logs, target[:, 1:, None], -1)[..., 0]
        weights = (target[:, 1:] != 0).astype(F32)
        return -jnp.sum(picked * weights) / jnp.sum(weights)

    return training(loss, params, (ints(batch, length), ints(batch, length), ints(batch)), "adam")


def _composed(first: Any, then: Any) -> Any:
    """Two steps `a h + b` as one."""
    return first[0] * then[0], then[0] * first[1] + then[1]


def mamba(how: str, train: bool = True, batch: int = 2, length: int = 1024) -> Call:
    """A selective state space, by associative_scan or by scan."""
    dim, inner, state, rank, layers = 768, 1536, 16, 48, 2
    one = {
        "n": spec(dim), "in": spec(dim, 2 * inner), "conv": spec(4, inner), "x": spec(inner, rank + 2 * state),
        "dt": spec(rank, inner), "bdt": spec(inner), "A": spec(inner, state), "D": spec(inner), "out": spec(inner, dim),
    }  # fmt: skip
    params = {"embed": spec(16000, dim), "layers": [one] * layers, "nf": spec(dim)}

    def block(x: Any, p: Any) -> Any:
        u, z = jnp.split(rms(x, p["n"]) @ p["in"], 2, -1)
        padded = jnp.pad(u, ((0, 0), (3, 0), (0, 0)))
        u = jax.nn.silu(sum(padded[:, i : i + length] * p["conv"][i] for i in range(4)))
        dt, b, c = jnp.split(u @ p["x"], [rank, rank + state], -1)
        dt = jax.nn.softplus(dt @ p["dt"] + p["bdt"])
        decay = jnp.exp(dt[..., None] * -jnp.exp(p["A"]))
        added = (dt * u)[..., None] * b[:, :, None, :]
        if how == "associative":
            _, h = lax.associative_scan(_composed, (decay, added), axis=1)
            y = jnp.einsum("blis,bls->bli", h, c)
        else:

            def turn(h: Any, each: Any) -> Any:
                h = each[0] * h + each[1]
                return h, jnp.einsum("bis,bs->bi", h, each[2])

            start = jnp.zeros((batch, inner, state))
            _, y = lax.scan(turn, start, tuple(jnp.moveaxis(a, 1, 0) for a in (decay, added, c)))
            y = jnp.moveaxis(y, 0, 1)
        return x + ((y + p["D"] * u) * jax.nn.silu(z)) @ p["out"]

    def logits(params: Any, tokens: Any) -> Any:
        x = params["embed"][tokens]
        for p in params["layers"]:
            x = block(x, p)
        return rms(x, params["nf"]) @ params["embed"].T

    if not train:
        return logits, (params, ints(batch, length)), ()
    return training(lambda p, t, y: token_loss(logits(p, t), y, "lse"), params, (ints(batch, length),) * 2, "adam")


PROGRAMS["mamba_associative_infer"] = partial(mamba, "associative", False)
PROGRAMS["mamba_associative_train"] = partial(mamba, "associative")
PROGRAMS["mamba_infer_small"] = partial(mamba, "associative", False, 1, 512)
PROGRAMS["mamba_scan_infer"] = partial(mamba, "scan", False)


@program("lru_associative_train")
def _() -> Call:
    dim, batch, length, layers = 1024, 8, 2048, 2
    one = {"n": spec(dim), "a": spec(dim), "wi": spec(dim, dim), "wr": spec(dim, dim), "wo": spec(dim, dim)}
    params = {"layers": [one] * layers, "in": spec(64, dim), "out": spec(dim, 64)}

    def loss(params: Any, x: Any, y: Any) -> Any:
        x = x @ params["in"]
        for p in params["layers"]:
            h = rms(x, p["n"])
            r = jax.nn.sigmoid(h @ p["wr"])
            a = jnp.exp(-8.0 * r * jax.nn.softplus(p["a"]))
            u = jnp.sqrt(1 - a * a) * (h @ p["wi"])
            _, s = lax.associative_scan(_composed, (a, u), axis=1)
            x = x + jax.nn.gelu(s) @ p["wo"]
        return jnp.mean((x @ params["out"] - y) ** 2)

    return training(loss, params, (spec(batch, length, 64), spec(batch, length, 64)), "adam")


@program("rwkv_infer")
def _() -> Call:
    dim, batch, length, layers = 1024, 8, 512, 2
    one = {k: spec(dim, dim) for k in "rkvo"} | {
        "g": spec(dim),
        "b": spec(dim),
        "mk": spec(dim),
        "mv": spec(dim),
        "mr": spec(dim),
        "w": spec(dim),
        "u": spec(dim),
        "ck": spec(dim, 4 * dim),
        "cv": spec(4 * dim, dim),
    }
    params = {"layers": [one] * layers}

    def shifted(x: Any) -> Any:
        return jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1)

    def forward(params: Any, x: Any) -> Any:
        params = cast(params, BF16)
        for p in params["layers"]:
            y = layer_norm(x, p["g"], p["b"])
            last = shifted(y)
            k = (y * p["mk"] + last * (1 - p["mk"])) @ p["k"]
            v = (y * p["mv"] + last * (1 - p["mv"])) @ p["v"]
            r = jax.nn.sigmoid((y * p["mr"] + last * (1 - p["mr"])) @ p["r"])

            def turn(state: Any, kv: Any, p: Any = p) -> Any:
                a, b, top = state
                k, v = kv
                q = jnp.maximum(top, p["u"] + k)
                out = (jnp.exp(top - q) * a + jnp.exp(p["u"] + k - q) * v) / (
                    jnp.exp(top - q) * b + jnp.exp(p["u"] + k - q)
                )
                q = jnp.maximum(top - jnp.exp(p["w"].astype(F32)), k)
                e1, e2 = jnp.exp(top - jnp.exp(p["w"].astype(F32)) - q), jnp.exp(k - q)
                return (e1 * a + e2 * v, e1 * b + e2, q), out

            zero = jnp.zeros((batch, dim), F32)
            _, w = lax.scan(
                turn, (zero, zero, zero - 1e30), (k.astype(F32).transpose(1, 0, 2), v.astype(F32).transpose(1, 0, 2))
            )
            x = x + (r * w.transpose(1, 0, 2).astype(BF16)) @ p["o"]
            y = layer_norm(x, p["g"], p["b"])
            x = x + jnp.square(jax.nn.relu(y @ p["ck"])) @ p["cv"]
        return x

    return forward, (params, spec(batch, length, dim, dtype=BF16)), ()


def recurrent(kind: str) -> Call:
    """An LSTM or GRU language model in training."""
    dim, batch, length, vocab = 512, 64, 64, 10000
    gates = 4 if kind == "lstm" else 3
    params = {
        "embed": spec(vocab, dim),
        "wx": spec(dim, gates * dim),
        "wh": spec(dim, gates * dim),
        "b": spec(gates * dim),
        "out": spec(dim, vocab),
    }

    def loss(params: Any, tokens: Any, labels: Any) -> Any:
        x = params["embed"][tokens].transpose(1, 0, 2)
        zero = jnp.zeros((batch, dim))

        def lstm(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ params["wx"] + h @ params["wh"] + params["b"], 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        def gru(h: Any, x: Any) -> Any:
            r, z, n = jnp.split(x, 3, -1)
            hr, hz, hn = jnp.split(h @ params["wh"], 3, -1)
            r, z = jax.nn.sigmoid(r + hr), jax.nn.sigmoid(z + hz)
            h = (1 - z) * jnp.tanh(n + r * hn) + z * h
            return h, h

        if kind == "lstm":
            _, hs = lax.scan(lstm, (zero, zero), x)
        else:
            _, hs = lax.scan(gru, zero, x @ params["wx"] + params["b"])
        return token_loss(hs.transpose(1, 0, 2) @ params["out"], labels, "take")

    return training(loss, params, (ints(batch, length), ints(batch, length)), "clipped")


PROGRAMS["lstm_train"] = partial(recurrent, "lstm")
PROGRAMS["gru_train"] = partial(recurrent, "gru")
