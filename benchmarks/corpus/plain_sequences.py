"""Language, sequences, recommendation and others written out in plain JAX, by no library's layers."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import cross_entropy, integers, mixed, spec, training

SEQUENCES = Catalogue("plain-sequences", "example", "llm")
CATALOGUES = [SEQUENCES]
BF16, F16 = jnp.bfloat16, jnp.float16
Shapes = Any


def rms_norm(x: Any, gain: Any) -> Any:
    """Scaled by the root of the mean square, in f32."""
    kept = x.astype(jnp.float32)
    return (kept * lax.rsqrt(jnp.mean(kept * kept, -1, keepdims=True) + 1e-6)).astype(x.dtype) * gain.astype(x.dtype)


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    """Normalised rows, in the type of x."""
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias


def rotated(x: Any, positions: Any) -> Any:
    """Rotary embeddings of interleaved pairs."""
    half = x.shape[-1] // 2
    angle = positions[..., None] / (10000.0 ** (jnp.arange(half) / half))
    cos, sin = jnp.cos(angle)[..., None, :], jnp.sin(angle)[..., None, :]
    a, b = x[..., ::2].astype(jnp.float32), x[..., 1::2].astype(jnp.float32)
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape).astype(x.dtype)


def attended(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention by einsums: scores in f32, a softmax, values."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), -1).astype(v.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


@SEQUENCES.program("plain_rope_lm_train_b4", "train", "bf16")
def _() -> Call:
    layers, dim, heads, hidden, vocab, batch, length = 12, 1024, 16, 2816, 32000, 4, 1024

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embed"][tokens]
        places = jnp.arange(length)
        mask = jnp.tril(jnp.ones((length, length), bool))
        for p in params["layers"]:
            y = rms_norm(x, p["n1"])
            q, k, v = jnp.moveaxis(jnp.einsum("btd,dche->btche", y, p["qkv"]), 2, 0)
            y = attended(rotated(q, places), rotated(k, places), v, mask)
            x = x + jnp.einsum("bthe,hed->btd", y, p["out"])
            y = rms_norm(x, p["n2"])
            x = x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]
        logits = rms_norm(x, params["n"]) @ params["embed"].T
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    layer = {
        "n1": spec(dim), "n2": spec(dim), "qkv": spec(dim, 3, heads, dim // heads), "out": spec(heads, dim // heads, dim),
        "gate": spec(dim, hidden), "up": spec(dim, hidden), "down": spec(hidden, dim),
    }  # fmt: skip
    params = {"embed": spec(vocab, dim), "layers": [layer] * layers, "n": spec(dim)}
    return training(mixed(loss), params, (integers(vocab, batch, length),), optax.adamw(3e-4))


@SEQUENCES.program("plain_encoder_infer_b32", "infer", "f16")
def _() -> Call:
    layers, dim, heads, batch, length = 12, 768, 12, 32, 384

    def apply(params: Any, tokens: Any, valid: Any) -> Any:
        x = params["words"][tokens] + params["places"][None, :length]
        mask = (jnp.arange(length)[None] < valid[:, None])[:, None, None]

        def layer(x: Any, p: Any) -> tuple[Any, None]:
            q, k, v = (jnp.reshape(x @ p[n] + p[n + "_b"], (batch, length, heads, -1)) for n in ("q", "k", "v"))
            y = attended(q, k, v, mask).reshape(batch, length, dim) @ p["o"]
            x = layer_norm(x + y, p["g1"], p["b1"])
            y = jax.nn.gelu(x @ p["up"] + p["up_b"], approximate=False) @ p["down"]
            return layer_norm(x + y, p["g2"], p["b2"]), None

        return jnp.tanh(lax.scan(layer, x, params["layers"])[0][:, 0] @ params["pool"])

    half = partial(spec, dtype=F16)
    stacked = {n: half(layers, dim, dim) for n in "qkvo"} | {n + "_b": half(layers, dim) for n in "qkv"}
    stacked |= {n: half(layers, dim) for n in ("g1", "b1", "g2", "b2")}
    stacked |= {"up": half(layers, dim, 3072), "up_b": half(layers, 3072), "down": half(layers, 3072, dim)}
    params = {"words": half(30522, dim), "places": half(512, dim), "layers": stacked, "pool": half(dim, dim)}
    return apply, (params, integers(30522, batch, length), integers(length, batch))


@SEQUENCES.program("plain_translator_train_b32", "train", "bf16")
def _() -> Call:
    layers, dim, heads, hidden, vocab, batch, length = 6, 512, 8, 2048, 37000, 32, 128

    def block(x: Any, memory: Any, p: Any, mask: Any) -> Any:
        y = layer_norm(x, p["g"], p["b"])
        memory = y if memory is None else memory
        q = (y @ p["q"]).reshape(batch, -1, heads, dim // heads)
        k = (memory @ p["k"]).reshape(batch, -1, heads, dim // heads)
        v = (memory @ p["v"]).reshape(batch, -1, heads, dim // heads)
        return x + attended(q, k, v, mask).reshape(batch, -1, dim) @ p["o"]

    def fed(x: Any, p: Any) -> Any:
        return x + jax.nn.relu(layer_norm(x, p["g"], p["b"]) @ p["up"]) @ p["down"]

    def loss(params: Any, source: Any, target: Any) -> Any:
        x, y = params["embed"][source] + params["places"], params["embed"][target] + params["places"]
        causal = jnp.tril(jnp.ones((length, length), bool))
        for p in params["encoder"]:
            x = fed(block(x, None, p["self"], source[:, None, None] > 0), p["feed"])
        for p in params["decoder"]:
            y = block(y, None, p["self"], causal)
            y = fed(block(y, x, p["cross"], source[:, None, None] > 0), p["feed"])
        logits = (y @ params["embed"].T).astype(jnp.float32)
        smooth = optax.smooth_labels(jax.nn.one_hot(target, vocab), 0.1)
        return optax.softmax_cross_entropy(logits, smooth).mean()

    attention = {"g": spec(dim), "b": spec(dim)} | {n: spec(dim, dim) for n in "qkvo"}
    feed = {"g": spec(dim), "b": spec(dim), "up": spec(dim, hidden), "down": spec(hidden, dim)}
    params = {
        "embed": spec(vocab, dim), "places": spec(length, dim), "encoder": [{"self": attention, "feed": feed}] * layers,
        "decoder": [{"self": attention, "cross": attention, "feed": feed}] * layers,
    }  # fmt: skip
    return training(
        mixed(loss), params, (integers(vocab, batch, length), integers(vocab, batch, length)), optax.adam(1e-3)
    )


@SEQUENCES.program("plain_switch_experts_train", "train", "bf16")
def _() -> Call:
    experts, dim, hidden, tokens, capacity = 16, 1024, 4096, 4096, 320

    def loss(params: Any, x: Any) -> Any:
        for p in params:
            y = rms_norm(x, p["n"])
            gates = jax.nn.softmax((y @ p["router"]).astype(jnp.float32), -1)
            chosen = jax.nn.one_hot(gates.argmax(-1), experts, dtype=jnp.float32)
            place = jnp.cumsum(chosen, 0) * chosen - 1
            kept = jax.nn.one_hot(place.astype(jnp.int32), capacity, dtype=BF16) * (place >= 0)[..., None].astype(BF16)
            inside = jnp.einsum("tec,td->ecd", kept, y)
            out = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", inside, p["up"])), p["down"])
            share = jnp.sum(gates * chosen, -1, keepdims=True).astype(BF16)
            x = x + share * jnp.einsum("tec,ecd->td", kept, out)
        return jnp.square(x.astype(jnp.float32)).mean()

    layer = {
        "n": spec(dim), "router": spec(dim, experts), "up": spec(experts, dim, hidden), "down": spec(experts, hidden, dim),
    }  # fmt: skip
    return training(mixed(loss), [layer] * 2, (spec(tokens, dim, dtype=BF16),), optax.adamw(1e-3))


@SEQUENCES.program("plain_gqa_decode_b16", "decode", "bf16")
def _() -> Call:
    layers, dim, heads, groups, size, hidden, vocab, batch, context = 16, 2048, 16, 4, 128, 5504, 50304, 16, 2048

    def turn(params: Any, cache: Any, tokens: Any, place: Any) -> Any:
        x = params["embed"][tokens]
        seen = jnp.arange(context) <= place

        def layer(x: Any, both: Any) -> Any:
            p, (keys, values) = both
            y = rms_norm(x, p["n1"])
            q = rotated((y @ p["q"]).reshape(batch, 1, heads, size), place[None])
            k = rotated((y @ p["k"]).reshape(batch, 1, groups, size), place[None])
            keys = lax.dynamic_update_slice(keys, k, (0, place, 0, 0))
            values = lax.dynamic_update_slice(values, (y @ p["v"]).reshape(batch, 1, groups, size), (0, place, 0, 0))
            scores = jnp.einsum("bgrd,bkgd->bgrk", q.reshape(batch, groups, -1, size), keys).astype(jnp.float32)
            weights = jax.nn.softmax(jnp.where(seen, scores * size**-0.5, -jnp.inf), -1).astype(BF16)
            x = x + jnp.einsum("bgrk,bkgd->bgrd", weights, values).reshape(batch, -1) @ p["o"]
            y = rms_norm(x, p["n2"])
            return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"], (keys, values)

        x, cache = lax.scan(layer, x, (params["layers"], cache))
        return jnp.argmax(rms_norm(x, params["n"]) @ params["head"], -1), cache

    half = partial(spec, dtype=BF16)
    wide, narrow = heads * size, groups * size
    p = {"n1": half(layers, dim), "n2": half(layers, dim), "q": half(layers, dim, wide), "k": half(layers, dim, narrow)}
    p |= {"v": half(layers, dim, narrow), "o": half(layers, wide, dim), "gate": half(layers, dim, hidden)}
    p |= {"up": half(layers, dim, hidden), "down": half(layers, hidden, dim)}
    params = {"embed": half(vocab, dim), "layers": p, "n": half(dim), "head": half(dim, vocab)}
    kept = half(layers, batch, context, groups, size)
    return turn, (
        params,
        (kept, kept),
        integers(vocab, batch),
        integers(context, dtype=jnp.int32),
    )


@SEQUENCES.program("plain_int8_weights_decode_b4", "decode", "int8")
def _() -> Call:
    layers, dim, hidden, batch = 24, 4096, 11008, 4

    def apply(params: Any, x: Any) -> Any:
        for p in params:
            y = rms_norm(x, p["n"])
            gate, up = (y @ (p[n].astype(BF16) * p[n + "_s"]) for n in ("gate", "up"))
            x = x + (jax.nn.silu(gate) * up) @ (p["down"].astype(BF16) * p["down_s"])
        return x

    byte, half = partial(spec, dtype=jnp.int8), partial(spec, dtype=BF16)
    layer = {
        "n": half(dim),
        "gate": byte(dim, hidden),
        "gate_s": half(hidden),
        "up": byte(dim, hidden),
        "up_s": half(hidden),
    }
    layer |= {"down": byte(hidden, dim), "down_s": half(dim)}
    return apply, ([layer] * layers, half(batch, dim))


@SEQUENCES.program("plain_gru_train_b64", "train", "f32", group="sequence")
def _() -> Call:
    dim, batch, length, vocab = 512, 64, 100, 10000

    def loss(params: Any, tokens: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            r, z = jnp.split(jax.nn.sigmoid(x[:, : 2 * dim] + h @ params["h"]), 2, -1)
            new = jnp.tanh(x[:, 2 * dim :] + (r * h) @ params["n"])
            h = (1 - z) * new + z * h
            return h, h

        x = jnp.swapaxes(params["embed"][tokens] @ params["x"], 0, 1)
        _, states = lax.scan(turn, jnp.zeros((batch, dim)), x)
        return cross_entropy((states @ params["head"])[:-1], tokens.T[1:])

    params = {
        "embed": spec(vocab, dim),
        "x": spec(dim, 3 * dim),
        "h": spec(dim, 2 * dim),
        "n": spec(dim, dim),
        "head": spec(dim, vocab),
    }
    return training(loss, params, (integers(vocab, batch, length),), optax.adam(1e-3))


@SEQUENCES.program("plain_bilstm_infer_b128", "infer", "bf16", group="sequence")
def _() -> Call:
    dim, batch, length = 256, 128, 64

    def one_way(p: Any, x: Any, back: bool) -> Any:
        def turn(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], dim), x.dtype)
        return lax.scan(turn, (zero, zero), x, reverse=back)[1]

    def apply(params: Any, x: Any) -> Any:
        for p in params["layers"]:
            x = jnp.concatenate([one_way(p["f"], x, False), one_way(p["b"], x, True)], -1)
        return jax.nn.log_softmax((x @ params["head"]).astype(jnp.float32), -1)

    half = partial(spec, dtype=BF16)
    way = lambda width: {"x": half(width, 4 * dim), "h": half(dim, 4 * dim), "b": half(4 * dim)}  # noqa: E731
    params = {"layers": [{"f": way(width), "b": way(width)} for width in (300, 2 * dim)], "head": half(2 * dim, 50)}
    return apply, (params, half(length, batch, 300))


@SEQUENCES.program("plain_dilated_train_b16", "train", "f32", group="audio")
def _() -> Call:
    width, layers, batch, length = 64, 10, 16, 8192

    def loss(params: Any, x: Any, labels: Any) -> Any:
        y, skip = x @ params["first"], 0.0
        for number, p in enumerate(params["layers"]):
            z = lax.conv_general_dilated(
                y, p["w"], (1,), [(2**number, 0)], rhs_dilation=(2**number,), dimension_numbers=("NWC", "WIO", "NWC")
            )
            a, b = jnp.split(z, 2, -1)
            z = jnp.tanh(a) * jax.nn.sigmoid(b)
            skip, y = skip + z @ p["skip"], y + z @ p["res"]
        return cross_entropy(jax.nn.relu(skip) @ params["head"], labels)

    layer = {"w": spec(2, width, 2 * width), "skip": spec(width, 128), "res": spec(width, width)}
    params = {"first": spec(1, width), "layers": [layer] * layers, "head": spec(128, 256)}
    return training(loss, params, (spec(batch, length, 1), integers(256, batch, length)), optax.adam(1e-3))


@SEQUENCES.program("plain_crossed_features_train_b8192", "train", "f32", group="recsys")
def _() -> Call:
    fields, rows, dim, batch = 39, 100_000, 16, 8192

    def loss(params: Any, ids: Any, labels: Any) -> Any:
        picked = jax.vmap(lambda table, each: table[each], in_axes=(0, 1), out_axes=1)(params["tables"], ids)
        first = jax.vmap(lambda table, each: table[each], in_axes=(0, 1), out_axes=1)(params["linear"], ids).sum(1)
        pairs = 0.5 * (picked.sum(1) ** 2 - (picked**2).sum(1)).sum(-1)
        x = picked.reshape(batch, -1)
        for w, b in params["mlp"]:
            x = jax.nn.relu(x @ w + b)
        return optax.sigmoid_binary_cross_entropy(first + pairs + x[:, 0], labels).mean()

    sizes = (fields * dim, 400, 400, 400, 1)
    params = {
        "tables": spec(fields, rows, dim), "linear": spec(fields, rows),
        "mlp": [(spec(a, b), spec(b)) for a, b in itertools.pairwise(sizes)],
    }  # fmt: skip
    return training(loss, params, (integers(rows, batch, fields), spec(batch)), optax.adagrad(0.01))


@SEQUENCES.program("plain_graph_convolutions_train", "train", "f32", group="graph")
def _() -> Call:
    nodes, edges, dim = 50_000, 600_000, 128

    def loss(params: Any, x: Any, source: Any, target: Any, labels: Any) -> Any:
        degree = jax.ops.segment_sum(jnp.ones(edges), target, nodes) + 1
        scale = lax.rsqrt(degree)
        for number, w in enumerate(params):
            y = (x * scale[:, None]) @ w
            x = (jax.ops.segment_sum(y[source], target, nodes) + y) * scale[:, None]
            x = jax.nn.relu(x) if number + 1 < len(params) else x
        return cross_entropy(x, labels)

    params = [spec(dim, dim), spec(dim, dim), spec(dim, 40)]
    data = (spec(nodes, dim), integers(nodes, edges), integers(nodes, edges), integers(40, nodes))
    return training(loss, params, data, optax.adam(1e-2))


@SEQUENCES.program("plain_adaptive_diffusion_train_b32", "train", "bf16", group="vision")
def _() -> Call:
    layers, dim, heads, batch, tokens = 12, 768, 12, 32, 256

    def loss(params: Any, x: Any, time: Any, noise: Any) -> Any:
        angles = time[:, None] * jnp.exp(-jnp.arange(128) / 128 * 9.2)
        c = (
            jax.nn.silu(jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1).astype(BF16) @ params["t1"])
            @ params["t2"]
        )
        y = x @ params["in"]
        for p in params["layers"]:
            shift, scale, gate, shift2, scale2, gate2 = jnp.split((jax.nn.silu(c) @ p["ada"])[:, None], 6, -1)
            z = layer_norm(y, 1.0, 0.0) * (1 + scale) + shift
            q, k, v = jnp.split((z @ p["qkv"]).reshape(batch, tokens, heads, -1), 3, -1)
            y = y + gate * (attended(q, k, v, True).reshape(batch, tokens, dim) @ p["o"])
            z = layer_norm(y, 1.0, 0.0) * (1 + scale2) + shift2
            y = y + gate2 * (jax.nn.gelu(z @ p["up"]) @ p["down"])
        return jnp.mean(jnp.square((y @ params["out"] - noise).astype(jnp.float32)))

    p = {
        "ada": spec(dim, 6 * dim),
        "qkv": spec(dim, 3 * dim),
        "o": spec(dim, dim),
        "up": spec(dim, 4 * dim),
        "down": spec(4 * dim, dim),
    }
    params = {
        "t1": spec(256, dim),
        "t2": spec(dim, dim),
        "in": spec(16, dim),
        "out": spec(dim, 16),
        "layers": [p] * layers,
    }
    half = partial(spec, dtype=BF16)
    return training(
        mixed(loss), params, (half(batch, tokens, 16), spec(batch), half(batch, tokens, 16)), optax.adamw(1e-4)
    )


@SEQUENCES.program("plain_linear_attention_infer_b4", "infer", "bf16", group="sequence")
def _() -> Call:
    layers, dim, heads, batch, length, chunk = 8, 1024, 8, 4, 4096, 128

    def mixed_in(q: Any, k: Any, v: Any) -> Any:
        parts = [jnp.moveaxis(each.reshape(batch, length // chunk, chunk, heads, -1), 1, 0) for each in (q, k, v)]
        mask = jnp.tril(jnp.ones((chunk, chunk), BF16))

        def turn(state: Any, part: Any) -> Any:
            q, k, v = part
            inner = jnp.einsum("bqhd,bkhd->bhqk", q, k) * mask
            out = jnp.einsum("bhqk,bkhe->bqhe", inner, v) + jnp.einsum("bqhd,bhde->bqhe", q, state.astype(BF16))
            return state + jnp.einsum("bkhd,bkhe->bhde", k, v, preferred_element_type=jnp.float32), out

        zero = jnp.zeros((batch, heads, dim // heads, dim // heads), jnp.float32)
        return jnp.moveaxis(lax.scan(turn, zero, tuple(parts))[1], 0, 1).reshape(batch, length, dim)

    def apply(params: Any, x: Any) -> Any:
        for p in params:
            y = rms_norm(x, p["n1"])
            q, k, v = (jnp.reshape(y @ p[n], (batch, length, heads, -1)) for n in "qkv")
            x = x + mixed_in(jax.nn.elu(q) + 1, jax.nn.elu(k) + 1, v) @ p["o"]
            x = x + jnp.square(jax.nn.relu(rms_norm(x, p["n2"]) @ p["up"])) @ p["down"]
        return x

    half = partial(spec, dtype=BF16)
    p = {n: half(dim, dim) for n in "qkvo"} | {
        "n1": half(dim),
        "n2": half(dim),
        "up": half(dim, 4 * dim),
        "down": half(4 * dim, dim),
    }
    return apply, ([p] * layers, half(batch, length, dim))


@SEQUENCES.program("plain_radiance_train", "train", "f32", group="misc")
def _() -> Call:
    width, rays, samples = 256, 1024, 64

    def encoded(x: Any, levels: int) -> Any:
        angles = (x[..., None, :] * 2.0 ** jnp.arange(levels)[:, None]).reshape(*x.shape[:-1], -1)
        return jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)], -1)

    def loss(params: Any, origin: Any, direction: Any, colour: Any) -> Any:
        depth = jnp.linspace(2.0, 6.0, samples)
        first = encoded(origin[:, None] + direction[:, None] * depth[:, None], 10)
        x = first
        for number, (w, b) in enumerate(params["trunk"]):
            x = jax.nn.relu((jnp.concatenate([x, first], -1) if number == 4 else x) @ w + b)
        density = jax.nn.relu(x @ params["density"])[..., 0]
        seen = jnp.broadcast_to(encoded(direction, 4)[:, None], (rays, samples, 27))
        rgb = jax.nn.sigmoid(jax.nn.relu(jnp.concatenate([x, seen], -1) @ params["view"]) @ params["rgb"])
        alpha = 1 - jnp.exp(-density * (4.0 / samples))
        through = jnp.cumprod(1 - alpha + 1e-10, -1)
        return jnp.mean((jnp.sum((alpha * through)[..., None] * rgb, 1) - colour) ** 2)

    sizes = [63, width, width, width, width + 63, width, width, width]
    params = {
        "trunk": [(spec(a, width), spec(width)) for a in sizes], "density": spec(width, 1),
        "view": spec(width + 27, 128), "rgb": spec(128, 3),
    }  # fmt: skip
    return training(loss, params, (spec(rays, 3), spec(rays, 3), spec(rays, 3)), optax.adam(5e-4))
