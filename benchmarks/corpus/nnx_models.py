"""Flax NNX: models after its examples (mnist, gemma, diffusion), its cells and attention, by `nnx.split` and `nnx.merge`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cross_entropy, integers, spec

NNX = Catalogue("flax.nnx", "example", "llm")
CATALOGUES = [NNX]
BF16 = jnp.bfloat16


def parted(make: Callable[[nnx.Rngs], Any]) -> tuple[Any, Any]:
    """The graph of a module and the shapes of its state; nothing is initialised."""
    return nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))


def inference(make: Callable[[nnx.Rngs], Any], *data: Any) -> Call:
    """A module's call with its state as the first argument, layers such as dropout switched off."""
    graph, state = parted(make)

    def call(state: Any, *given: Any) -> Any:
        module = nnx.merge(graph, state)
        module.eval()
        return module(*given)

    return call, (state, *data)


def step(make: Callable[[nnx.Rngs], Any], loss: Callable[..., Any], inputs: tuple[Any, ...], *targets: Any) -> Call:
    """A training step of a module: gradients by its parameters alone, AdamW, other state carried along."""
    module = nnx.eval_shape(lambda: make(nnx.Rngs(0)))
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    optimizer = optax.adamw(1e-3)

    def stepped(params: Any, rest: Any, state: Any, inputs: Any, *targets: Any) -> Any:
        def lossy(params: Any, rest: Any) -> Any:
            module = nnx.merge(graph, params, rest, copy=True)
            module.train()
            value = loss(module(*inputs), *targets)
            return value, nnx.split(module, nnx.Param, ...)[2]

        (value, new), grads = jax.value_and_grad(lossy, has_aux=True)(params, rest)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), new, state, value

    return stepped, (params, rest, jax.eval_shape(optimizer.init, params), inputs, *targets)


class Cnn(nnx.Module):
    """The network of the mnist example, with batch norm and dropout."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.second = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.dropout = nnx.Dropout(0.25, rngs=rngs)
        self.third, self.last = nnx.Linear(3136, 256, rngs=rngs), nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        """Logits of ten classes."""
        x = nnx.avg_pool(nnx.relu(self.norm(self.first(x))), (2, 2), strides=(2, 2))
        x = nnx.avg_pool(nnx.relu(self.second(x)), (2, 2), strides=(2, 2))
        return self.last(self.dropout(nnx.relu(self.third(x.reshape(x.shape[0], -1)))))


NNX.add(
    "nnx_mnist_train",
    lambda: step(Cnn, cross_entropy, (spec(1024, 28, 28, 1),), integers(10, 1024)),
    "train",
    group="vision",
)


def rotated(x: Any, places: Any) -> Any:
    """Rotary embedding of queries or keys, halves as pairs."""
    half = x.shape[-1] // 2
    angles = places[..., None, None] * 10000.0 ** (-jnp.arange(half) / half)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1).astype(x.dtype)


class GemmaBlock(nnx.Module):
    """A block of the gemma example: grouped queries, gated feed-forward network, RMS norms before and behind."""

    def __init__(self, dim: int, heads: int, groups: int, size: int, hidden: int, dtype: Any, rngs: nnx.Rngs):
        make = partial(nnx.Einsum, dtype=dtype, param_dtype=dtype, rngs=rngs)
        self.query = make("btd,dhk->bthk", (dim, heads, size))
        self.keys = make("btd,cdhk->cbthk", (2, dim, groups, size))
        self.out = make("bthk,hkd->btd", (heads, size, dim))
        self.gate = make("btd,cdf->cbtf", (2, dim, hidden))
        self.down = nnx.Linear(hidden, dim, use_bias=False, dtype=dtype, param_dtype=dtype, rngs=rngs)
        self.norms = nnx.List([nnx.RMSNorm(dim, dtype=dtype, param_dtype=dtype, rngs=rngs) for _ in range(4)])

    def __call__(self, x: Any, places: Any, mask: Any, cache: Any = None) -> Any:
        """The block's output, and keys and values: those of the cache with the new ones put in their place."""
        y = self.norms[0](x)
        query = rotated(self.query(y), places)
        key, value = self.keys(y)
        key = rotated(key, places)
        if cache is not None:
            start = places[0, 0].astype(jnp.int32)
            key = jax.lax.dynamic_update_slice_in_dim(cache[0], key, start, 1)
            value = jax.lax.dynamic_update_slice_in_dim(cache[1], value, start, 1)
        x = x + self.norms[1](self.out(jax.nn.dot_product_attention(query, key, value, mask=mask)))
        gate, up = self.gate(self.norms[2](x))
        return x + self.norms[3](self.down(nnx.gelu(gate) * up)), (key, value)


class Gemma(nnx.Module):
    """The gemma example's decoder."""

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        layers: int,
        heads: int,
        groups: int,
        size: int,
        hidden: int,
        dtype: Any,
        rngs: nnx.Rngs,
    ):
        self.embedding = nnx.Embed(vocabulary, dim, dtype=dtype, param_dtype=dtype, rngs=rngs)
        self.blocks = nnx.List([GemmaBlock(dim, heads, groups, size, hidden, dtype, rngs) for _ in range(layers)])
        self.norm = nnx.RMSNorm(dim, dtype=dtype, param_dtype=dtype, rngs=rngs)

    def __call__(self, tokens: Any, place: Any = None, caches: Any = None) -> Any:
        """Logits, and the new caches where there were some."""
        x = self.embedding(tokens) * self.embedding.embedding.shape[1] ** 0.5
        x = x.astype(self.embedding.embedding.dtype)
        start = 0 if place is None else place
        places = jnp.broadcast_to(start + jnp.arange(tokens.shape[1]), tokens.shape)
        length = tokens.shape[1] if caches is None else caches[0][0].shape[1]
        mask = (jnp.arange(length)[None, None, :] <= places[:, :, None])[:, None]
        new = []
        for number, block in enumerate(self.blocks):
            x, pair = block(x, places.astype(jnp.float32), mask, None if caches is None else caches[number])
            new.append(pair)
        logits = self.embedding.attend(self.norm(x))
        logits = jnp.tanh(logits / 30.0) * 30.0
        return logits if caches is None else (logits, new)


SMALL = {"vocabulary": 32000, "dim": 768, "layers": 8, "heads": 12, "groups": 4, "size": 64, "hidden": 3072}


@NNX.program("nnx_gemma_small_train", "train", "bf16")
def _() -> Call:
    return step(
        partial(_gemma, dtype=BF16, **SMALL), cross_entropy, (integers(32000, 8, 512),), integers(32000, 8, 512)
    )


@NNX.program("nnx_gemma_prefill_infer", "infer", "f32")
def _() -> Call:
    return inference(partial(_gemma, dtype=jnp.float32, **SMALL), integers(32000, 2, 1024))


def _gemma(rngs: nnx.Rngs, **sizes: Any) -> Gemma:
    """A decoder of these sizes."""
    return Gemma(**sizes, rngs=rngs)


def decoding(batch: int, context: int, dtype: Any) -> Call:
    """One token through the decoder, with caches."""
    cache = spec(batch, context, SMALL["groups"], SMALL["size"], dtype=dtype)
    caches = [(cache, cache)] * SMALL["layers"]
    make = partial(_gemma, dtype=dtype, **SMALL)
    return inference(make, integers(32000, batch, 1), integers(context), caches)


NNX.add("nnx_gemma_decode_b1", partial(decoding, 1, 2048, BF16), "decode", "bf16")
NNX.add("nnx_gemma_decode_b8", partial(decoding, 8, 4096, BF16), "decode", "bf16")
NNX.add("nnx_gemma_decode_b32_f16", partial(decoding, 32, 1024, jnp.float16), "decode", "f16")


class Diffusion(nnx.Module):
    """A denoiser of patches whose blocks are modulated by the time, in the manner of DiT."""

    def __init__(self, dim: int, layers: int, rngs: nnx.Rngs):
        make = partial(nnx.Linear, dtype=BF16, rngs=rngs)
        self.patches = nnx.Conv(4, dim, (2, 2), strides=(2, 2), dtype=BF16, rngs=rngs)
        self.time = nnx.Sequential(make(256, dim), nnx.silu, make(dim, dim))
        self.attentions = nnx.List(
            [nnx.MultiHeadAttention(12, dim, dtype=BF16, decode=False, rngs=rngs) for _ in range(layers)]
        )
        self.mlps = nnx.List([nnx.Sequential(make(dim, 4 * dim), nnx.gelu, make(4 * dim, dim)) for _ in range(layers)])
        self.modulations = nnx.List([make(dim, 6 * dim) for _ in range(layers)])
        self.norm = nnx.LayerNorm(dim, use_bias=False, use_scale=False, dtype=BF16, rngs=rngs)
        self.last = make(dim, 16)

    def __call__(self, x: Any, time: Any) -> Any:
        """The noise, by patches."""
        angles = time[:, None] * jnp.exp(-jnp.arange(128) / 16.0)
        condition = nnx.silu(self.time(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)))[:, None]
        x = self.patches(x).reshape(x.shape[0], -1, self.last.in_features)
        for attend, mlp, modulation in zip(self.attentions, self.mlps, self.modulations, strict=True):
            a, b, c, d, e, f = jnp.split(modulation(condition), 6, -1)
            x = x + c * attend(self.norm(x) * (1 + a) + b)
            x = x + f * mlp(self.norm(x) * (1 + d) + e)
        return self.last(self.norm(x))


@NNX.program("nnx_dit_train", "train", "mixed", group="vision")
def _() -> Call:
    def loss(out: Any, noise: Any) -> Any:
        return jnp.square(out.astype(jnp.float32) - noise).mean()

    make = lambda rngs: Diffusion(384, 8, rngs)  # noqa: E731
    return step(make, loss, (spec(32, 32, 32, 4), spec(32)), spec(32, 256, 16))


@NNX.program("nnx_lora_linear_train", "train", "f32", origin="helper")
def _() -> Call:
    def make(rngs: nnx.Rngs) -> Any:
        return nnx.Sequential(*[nnx.LoRALinear(2048, 2048, lora_rank=16, rngs=rngs) for _ in range(4)])

    graph, low, rest = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))), nnx.LoRAParam, ...)

    def grads(low: Any, rest: Any, x: Any) -> Any:
        return jax.value_and_grad(lambda low: jnp.square(nnx.merge(graph, low, rest)(x)).mean())(low)

    return grads, (low, rest, spec(4096, 2048))


class Recurrent(nnx.Module):
    """Cells of several kinds after each other."""

    def __init__(self, rngs: nnx.Rngs):
        self.rnns = nnx.List(
            [
                nnx.RNN(nnx.GRUCell(128, 256, rngs=rngs)),
                nnx.RNN(nnx.OptimizedLSTMCell(256, 256, rngs=rngs)),
                nnx.RNN(nnx.SimpleCell(256, 256, rngs=rngs)),
            ]
        )

    def __call__(self, x: Any) -> Any:
        """The last cell's outputs."""
        for rnn in self.rnns:
            x = rnn(x)
        return x


NNX.add(
    "nnx_rnn_cells_infer", lambda: inference(Recurrent, spec(64, 100, 128)), "infer", group="sequence", origin="helper"
)


@NNX.program("nnx_scanned_layers_remat_train", "train", "bf16", origin="helper")
def _() -> Call:
    def layer(rngs: nnx.Rngs) -> Any:
        return nnx.Sequential(
            nnx.Linear(1024, 4096, dtype=BF16, rngs=rngs), nnx.gelu, nnx.Linear(4096, 1024, dtype=BF16, rngs=rngs)
        )

    graph, one = parted(layer)
    stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((12, *leaf.shape), leaf.dtype), one)

    def loss(state: Any, x: Any) -> Any:
        body = jax.checkpoint(lambda x, each: (x + nnx.merge(graph, each)(x), None))
        return jnp.square(jax.lax.scan(body, x, state)[0].astype(jnp.float32)).mean()

    return jax.value_and_grad(loss), (stacked, spec(8192, 1024, dtype=BF16))


@NNX.program("nnx_ddpm_sampler_step", "step", "f32", group="vision", origin="helper")
def _() -> Call:
    class Small(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.convs = nnx.List([nnx.Conv(w, v, (3, 3), rngs=rngs) for w, v in ((3, 64), (64, 64), (64, 3))])
            self.norms = nnx.List([nnx.GroupNorm(64, 8, rngs=rngs) for _ in range(2)])

        def __call__(self, x: Any) -> Any:
            for conv, norm in zip(self.convs, self.norms, strict=False):
                x = nnx.silu(norm(conv(x)))
            return self.convs[-1](x)

    graph, state = parted(Small)

    def sample(state: Any, key: Any, x: Any) -> Any:
        def turn(number: Any, carry: Any) -> Any:
            x, key = carry
            key, part = jax.random.split(key)
            beta = 1e-4 + 0.02 * number / 20
            x = (x - beta * nnx.merge(graph, state)(x)) / jnp.sqrt(1 - beta)
            return x + jnp.sqrt(beta) * jax.random.normal(part, x.shape), key

        return jax.lax.fori_loop(0, 20, turn, (x, key))[0]

    return sample, (state, KEY, spec(16, 64, 64, 3))
