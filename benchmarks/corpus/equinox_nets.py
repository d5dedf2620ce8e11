"""Equinox: models after its examples, and its layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cast, cross_entropy, integers, spec

EQUINOX = Catalogue("equinox", "example", "vision")
CATALOGUES = [EQUINOX]


BF16 = jnp.bfloat16


def parted(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The shapes of a module's arrays, and all the rest of it."""
    return eqx.partition(
        eqx.filter_eval_shape(make, jax.random.PRNGKey(0)), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
    )


def inference(make: Callable[[Any], Any], call: Callable[..., Any], *data: Any, dtype: Any = jnp.float32) -> Call:
    """`call(module, *data)` with the module's arrays as the first argument."""
    arrays, rest = parted(make)
    return (lambda arrays, *given: call(eqx.combine(arrays, rest), *given)), (cast(arrays, dtype), *data)


def step(
    make: Callable[[Any], Any], loss: Callable[..., Any], *data: Any, narrow: Any = None, optimizer: Any = None
) -> Call:
    """A training step of `loss(module, *data)`; `narrow` is the type in which parameters are read."""
    arrays, rest = parted(make)
    optimizer = optimizer or optax.adamw(1e-3)

    def stepped(arrays: Any, state: Any, *given: Any) -> Any:
        def lossy(arrays: Any) -> Any:
            return loss(eqx.combine(cast(arrays, narrow) if narrow else arrays, rest), *given)

        value, grads = jax.value_and_grad(lossy)(arrays)
        updates, state = optimizer.update(grads, state, arrays)
        return optax.apply_updates(arrays, updates), state, value

    return stepped, (arrays, jax.eval_shape(optimizer.init, arrays), *data)


class Mixer(eqx.Module):
    """An MLP-Mixer, after Equinox's score-based diffusion example."""

    patches: eqx.nn.Conv2d
    mixes: list[tuple[eqx.nn.MLP, eqx.nn.MLP]]
    norm: eqx.nn.LayerNorm
    last: eqx.nn.Linear

    def __init__(self, key: Any, width: int = 256, depth: int = 6, places: int = 196):
        keys = jax.random.split(key, 2 * depth + 2)
        self.patches = eqx.nn.Conv2d(3, width, 16, 16, key=keys[0])
        mlp = partial(eqx.nn.MLP, depth=1, activation=jax.nn.gelu)
        self.mixes = [
            (mlp(places, places, 512, key=keys[2 * i + 2]), mlp(width, width, 1024, key=keys[2 * i + 3]))
            for i in range(depth)
        ]
        self.norm = eqx.nn.LayerNorm(width)
        self.last = eqx.nn.Linear(width, 1000, key=keys[1])

    def __call__(self, image: Any) -> Any:
        """Logits of one image."""
        x = self.patches(image)
        x = x.reshape(x.shape[0], -1)
        for tokens, channels in self.mixes:
            x = x + jax.vmap(tokens)(jax.vmap(self.norm)(x.T).T)
            x = x + jax.vmap(channels)(jax.vmap(self.norm)(x.T)).T
        return self.last(x.mean(-1))


@EQUINOX.program("equinox_mixer_classifier_train", "train", "mixed")
def _() -> Call:
    loss = lambda model, x, y: cross_entropy(jax.vmap(model)(x), y)  # noqa: E731
    return step(Mixer, loss, spec(128, 3, 224, 224, dtype=BF16), integers(1000, 128), narrow=BF16)


class Encoder(eqx.Module):
    """Attention and a feed-forward network, normalised before."""

    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norms: list[eqx.nn.LayerNorm]

    def __init__(self, key: Any, width: int, heads: int):
        first, second = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=first)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=second)
        self.norms = [eqx.nn.LayerNorm(width) for _ in range(2)]

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """The tokens of one sequence."""
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask=mask)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Bert(eqx.Module):
    """The classifier of Equinox's BERT example."""

    words: eqx.nn.Embedding
    places: eqx.nn.Embedding
    layers: list[Encoder]
    last: eqx.nn.Linear

    def __init__(self, key: Any, width: int = 512, depth: int = 4):
        keys = jax.random.split(key, depth + 3)
        self.words = eqx.nn.Embedding(30522, width, key=keys[0])
        self.places = eqx.nn.Embedding(512, width, key=keys[1])
        self.layers = [Encoder(each, width, 8) for each in keys[3:]]
        self.last = eqx.nn.Linear(width, 2, key=keys[2])

    def __call__(self, tokens: Any) -> Any:
        """Logits of one sequence."""
        x = jax.vmap(self.words)(tokens) + jax.vmap(self.places)(jnp.arange(tokens.shape[0]))
        mask = jnp.broadcast_to(tokens != 0, (tokens.shape[0], tokens.shape[0]))
        for layer in self.layers:
            x = layer(x, mask)
        return self.last(x[0])


@EQUINOX.program("equinox_bert_finetune_train", "train", "f32", group="llm")
def _() -> Call:
    loss = lambda model, x, y: cross_entropy(jax.vmap(model)(x), y)  # noqa: E731
    return step(Bert, loss, integers(30522, 32, 128), integers(2, 32))


@EQUINOX.program("equinox_bert_infer", "infer", "bf16", group="llm")
def _() -> Call:
    return inference(Bert, lambda model, x: jax.vmap(model)(x), integers(30522, 64, 256), dtype=BF16)


class Generator(eqx.Module):
    """The generator of Equinox's DCGAN example, without its norms."""

    layers: list[eqx.nn.ConvTranspose2d]

    def __init__(self, key: Any):
        keys = jax.random.split(key, 5)
        widths = (100, 512, 256, 128, 64, 3)
        self.layers = [
            eqx.nn.ConvTranspose2d(a, b, 4, 1 if i == 0 else 2, padding=0 if i == 0 else 1, key=keys[i])
            for i, (a, b) in enumerate(itertools.pairwise(widths))
        ]

    def __call__(self, x: Any) -> Any:
        """One image."""
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return jnp.tanh(self.layers[-1](x))


@EQUINOX.program("equinox_dcgan_generator_train", "train", "f32")
def _() -> Call:
    loss = lambda model, noise: jnp.square(jax.vmap(model)(noise)).mean()  # noqa: E731
    return step(Generator, loss, spec(64, 100, 1, 1))


class Unet(eqx.Module):
    """A U-Net of one image, channels first, as Equinox convolves."""

    down: list[eqx.nn.Conv2d]
    up: list[eqx.nn.ConvTranspose2d]
    mid: list[eqx.nn.Conv2d]
    norms: list[eqx.nn.GroupNorm]

    def __init__(self, key: Any):
        keys = iter(jax.random.split(key, 12))
        widths = (32, 64, 128, 256)
        pairs = list(itertools.pairwise(widths))
        self.down = [eqx.nn.Conv2d(3, 32, 3, padding=1, key=next(keys))]
        self.down += [eqx.nn.Conv2d(a, b, 4, 2, 1, key=next(keys)) for a, b in pairs]
        self.up = [eqx.nn.ConvTranspose2d(b, a, 4, 2, padding=1, key=next(keys)) for a, b in pairs[::-1]]
        self.mid = [eqx.nn.Conv2d(2 * a, a, 3, padding=1, key=next(keys)) for a, _ in pairs[::-1]]
        self.mid.append(eqx.nn.Conv2d(32, 3, 1, key=next(keys)))
        self.norms = [eqx.nn.GroupNorm(8, width) for width in widths]

    def __call__(self, x: Any) -> Any:
        """An image of the same size."""
        kept = []
        for conv, norm in zip(self.down, self.norms, strict=True):
            x = jax.nn.silu(norm(conv(x)))
            kept.append(x)
        for number, up in enumerate(self.up):
            x = jax.nn.silu(self.mid[number](jnp.concatenate([up(x), kept[-number - 2]])))
        return self.mid[-1](x)


@EQUINOX.program("equinox_unet_denoise_train", "train", "mixed")
def _() -> Call:
    def loss(model: Any, images: Any, key: Any) -> Any:
        noise = jax.random.normal(key, images.shape, images.dtype)
        return jnp.square((jax.vmap(model)(images + noise) - noise).astype(jnp.float32)).mean()

    return step(Unet, loss, spec(16, 3, 128, 128, dtype=BF16), KEY, narrow=BF16)


@EQUINOX.program("equinox_unet_f16_infer", "infer", "f16")
def _() -> Call:
    return inference(
        Unet, lambda model, x: jax.vmap(model)(x), spec(32, 3, 128, 128, dtype=jnp.float16), dtype=jnp.float16
    )


@EQUINOX.program("equinox_ensemble_mlp_train", "train", "f32", group="misc", origin="helper")
def _() -> Call:
    make = eqx.filter_vmap(lambda key: eqx.nn.MLP(64, 1, 256, 3, key=key))

    def loss(models: Any, x: Any, y: Any) -> Any:
        each = eqx.filter_vmap(lambda model, x: jax.vmap(model)(x), in_axes=(eqx.if_array(0), None))(models, x)
        return jnp.square(each[..., 0] - y).mean()

    return step(lambda key: make(jax.random.split(key, 32)), loss, spec(1024, 64), spec(1024))


@EQUINOX.program("equinox_rnn_spirals_train", "train", "f32", group="sequence")
def _() -> Call:
    def loss(model: Any, x: Any, y: Any) -> Any:
        cell, linear = model

        def one(series: Any) -> Any:
            return linear(jax.lax.scan(lambda h, each: (cell(each, h), None), jnp.zeros(cell.hidden_size), series)[0])

        return cross_entropy(jax.vmap(one)(x), y)

    make = lambda key: (eqx.nn.GRUCell(16, 128, key=key), eqx.nn.Linear(128, 10, key=key))  # noqa: E731
    return step(make, loss, spec(256, 100, 16), integers(10, 256))


@EQUINOX.program("equinox_pools_3d_infer", "infer", "bf16", origin="helper")
def _() -> Call:
    def call(model: Any, x: Any) -> Any:
        first, second = model
        pool = eqx.nn.MaxPool3d(2, 2)
        one = lambda x: eqx.nn.AdaptiveAvgPool3d(4)(jax.nn.relu(second(pool(jax.nn.relu(first(x))))))  # noqa: E731
        return jax.vmap(one)(x)

    make = lambda key: (eqx.nn.Conv3d(1, 16, 5, padding=2, key=key), eqx.nn.Conv3d(16, 32, 3, padding=1, key=key))  # noqa: E731
    return inference(make, call, spec(4, 1, 64, 64, 64, dtype=BF16), dtype=BF16)


@EQUINOX.program("equinox_conv1d_signals_train", "train", "f32", group="audio", origin="helper")
def _() -> Call:
    widths = (1, 64, 128, 256, 256)

    def make(key: Any) -> Any:
        keys = jax.random.split(key, 5)
        convs = [eqx.nn.Conv1d(a, b, 9, 4, 4, key=keys[i]) for i, (a, b) in enumerate(itertools.pairwise(widths))]
        return convs, eqx.nn.Linear(256, 35, key=keys[4])

    def loss(model: Any, waves: Any, labels: Any) -> Any:
        convs, last = model

        def one(wave: Any) -> Any:
            for conv in convs:
                wave = jax.nn.relu(conv(wave))
            return last(wave.mean(-1))

        return cross_entropy(jax.vmap(one)(waves), labels)

    return step(make, loss, spec(64, 1, 16000), integers(35, 64))


@EQUINOX.program("equinox_lstm_language_train", "train", "f32", group="sequence", origin="helper")
def _() -> Call:
    def make(key: Any) -> Any:
        keys = jax.random.split(key, 3)
        table, cell = eqx.nn.Embedding(10000, 256, key=keys[0]), eqx.nn.LSTMCell(256, 512, key=keys[1])
        return table, cell, eqx.nn.Linear(512, 10000, key=keys[2])

    def loss(model: Any, tokens: Any) -> Any:
        table, cell, last = model

        def one(row: Any) -> Any:
            def turn(carried: Any, x: Any) -> Any:
                carried = cell(x, carried)
                return carried, carried[0]

            start = (jnp.zeros(512), jnp.zeros(512))
            return jax.vmap(last)(jax.lax.scan(turn, start, jax.vmap(table)(row))[1])

        return cross_entropy(jax.vmap(one)(tokens)[:, :-1], tokens[:, 1:])

    return step(make, loss, integers(10000, 32, 64))
