"""Haiku: its own networks and cores, and models after its examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import optax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cross_entropy, integers, spec

HAIKU = Catalogue("dm-haiku", "library", "vision")
CATALOGUES = [HAIKU]
BF16 = jnp.bfloat16


def inference(function: Callable[..., Any], *data: Any, first: Callable[..., Any] | None = None) -> Call:
    """A Haiku function with its parameters and state, which `first` initialises where that is another one, as arguments."""
    both = hk.transform_with_state(function)
    params, state = jax.eval_shape(hk.transform_with_state(first or function).init, KEY, *data)
    return (lambda params, state, key, *given: both.apply(params, state, key, *given)[0]), (params, state, KEY, *data)


def step(function: Callable[..., Any], *data: Any, optimizer: Any = None) -> Call:
    """A training step of a Haiku function that returns its loss."""
    optimizer = optimizer or optax.adam(1e-3)
    both = hk.transform_with_state(function)
    params, state = jax.eval_shape(both.init, KEY, *data)

    def stepped(params: Any, state: Any, moments: Any, key: Any, *given: Any) -> Any:
        (value, state), grads = jax.value_and_grad(both.apply, has_aux=True)(params, state, key, *given)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), state, moments, value

    return stepped, (params, state, jax.eval_shape(optimizer.init, params), KEY, *data)


def narrowed(module: type, policy: str) -> None:
    """Sets the types in which a kind of module keeps and computes."""
    hk.mixed_precision.set_policy(module, jmp.get_policy(policy))


def residual(name: str, mode: str, policy: str, batch: int, size: int, **options: Any) -> Call:
    """One of Haiku's residual networks or its MobileNet on images."""
    module = getattr(hk.nets, name)
    narrowed(module, policy)

    def logits(images: Any, training: bool) -> Any:
        return module(num_classes=1000, **options)(images, is_training=training)

    images = spec(batch, size, size, 3)
    if mode == "infer":
        return inference(lambda x: logits(x, False), images, first=lambda x: logits(x, True))
    return step(
        lambda x, y: cross_entropy(logits(x, True), y), images, integers(1000, batch), optimizer=optax.sgd(0.1, 0.9)
    )


FULL, HALF, MIXED = (
    "params=f32,compute=f32,output=f32",
    "params=bf16,compute=bf16,output=bf16",
    "params=f32,compute=bf16,output=f32",
)
for name, mode, dtype, policy, batch, size, options in (
    ("ResNet18", "train", "f32", FULL, 128, 224, {"resnet_v2": True}),
    ("ResNet34", "train", "mixed", MIXED, 64, 224, {}),
    ("ResNet101", "infer", "bf16", HALF, 64, 224, {"resnet_v2": True}),
    ("ResNet50", "infer", "f32", FULL, 32, 224, {}),
    ("MobileNetV1", "train", "f32", FULL, 64, 224, {}),
    ("MobileNetV1", "infer", "bf16", HALF, 128, 224, {}),
):
    HAIKU.add(
        f"haiku_{name.lower()}_{dtype}_{mode}",
        partial(residual, name, mode, policy, batch, size, **options),
        mode,
        dtype,
    )


@HAIKU.program("haiku_vqvae_ema_train", "train", origin="example")
def _() -> Call:
    def loss(images: Any) -> Any:
        x = images
        for width in (64, 128):
            x = jax.nn.relu(hk.Conv2D(width, 4, stride=2)(x))
        x = hk.Conv2D(64, 1)(x + hk.Conv2D(128, 3)(jax.nn.relu(x)))
        coded = hk.nets.VectorQuantizerEMA(64, 512, commitment_cost=0.25, decay=0.99)(x, is_training=True)
        x = jax.nn.relu(hk.Conv2D(128, 3)(coded["quantize"]))
        x = hk.Conv2DTranspose(3, 4, stride=2)(jax.nn.relu(hk.Conv2DTranspose(64, 4, stride=2)(x)))
        return jnp.square(x - images).mean() / 0.06 + coded["loss"]

    return step(loss, spec(64, 64, 64, 3))


def attention_block(x: Any, heads: int, size: int, mask: Any) -> Any:
    """A block of a decoder: attention and a feed-forward network, normalised before, with dropout."""
    normal = hk.LayerNorm(-1, True, True)(x)
    start = hk.initializers.VarianceScaling(0.1)
    x = x + hk.dropout(
        hk.next_rng_key(), 0.1, hk.MultiHeadAttention(heads, size, w_init=start)(normal, normal, normal, mask)
    )
    hidden = jax.nn.gelu(hk.Linear(4 * x.shape[-1])(hk.LayerNorm(-1, True, True)(x)))
    return x + hk.dropout(hk.next_rng_key(), 0.1, hk.Linear(x.shape[-1])(hidden))


@HAIKU.program("haiku_transformer_remat_train", "train", "mixed", group="llm", origin="example")
def _() -> Call:
    def loss(tokens: Any) -> Any:
        narrowed(hk.Linear, MIXED)
        x = hk.Embed(32000, 512)(tokens) + hk.get_parameter("places", (512, 512), init=jnp.zeros)
        mask = jnp.tril(jnp.ones((1, 1, 512, 512)))
        for _ in range(6):
            x = hk.remat(partial(attention_block, heads=8, size=64, mask=mask))(x)
        logits = hk.Linear(32000)(hk.LayerNorm(-1, True, True)(x))
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    return step(loss, integers(32000, 16, 512), optimizer=optax.adamw(1e-4))


@HAIKU.program("haiku_transformer_stack_infer", "infer", "f32", group="llm", origin="example")
def _() -> Call:
    def logits(tokens: Any) -> Any:
        narrowed(hk.Linear, FULL)
        x = hk.Embed(50257, 768)(tokens)
        mask = jnp.tril(jnp.ones((1, 1, 1024, 1024)))
        x = hk.experimental.layer_stack(8)(partial(attention_block, heads=12, size=64, mask=mask))(x)
        return hk.Linear(50257)(hk.LayerNorm(-1, True, True)(x[:, -1]))

    return inference(logits, integers(50257, 4, 1024))


@HAIKU.program("haiku_lstm_characters_train", "train", group="sequence", origin="example")
def _() -> Call:
    def loss(tokens: Any) -> Any:
        narrowed(hk.Linear, FULL)
        core = hk.DeepRNN([hk.LSTM(512), jax.nn.relu, hk.LSTM(512), hk.nets.MLP([512, 128])])
        logits, _ = hk.dynamic_unroll(core, hk.one_hot(tokens, 128), core.initial_state(64))
        return cross_entropy(logits[:-1], tokens[1:])

    return step(loss, integers(128, 128, 64))


@HAIKU.program("haiku_gru_static_infer", "infer", group="sequence", origin="helper")
def _() -> Call:
    def run(x: Any) -> Any:
        narrowed(hk.Linear, FULL)
        core = hk.ResetCore(hk.GRU(256))
        return hk.static_unroll(core, (x, jnp.zeros(x.shape[:2], bool)), core.initial_state(x.shape[1]))[0]

    return inference(run, spec(32, 128, 128))


@HAIKU.program("haiku_conv2dlstm_infer", "infer", group="sequence", origin="helper")
def _() -> Call:
    def run(x: Any) -> Any:
        core = hk.Conv2DLSTM((48, 48), 32, 3)
        return hk.dynamic_unroll(core, x, core.initial_state(8))[0]

    return inference(run, spec(16, 8, 48, 48, 16))


@HAIKU.program("haiku_separable_spectral_gan_train", "train", origin="helper")
def _() -> Call:
    def loss(images: Any) -> Any:
        x = images
        for width in (64, 128, 256):
            x = hk.SeparableDepthwiseConv2D(1, 3, stride=2)(hk.Conv2D(width, 3)(x))
            x = jax.nn.leaky_relu(hk.InstanceNorm(True, True)(x))
        return jax.nn.softplus(hk.Linear(1)(x.mean((1, 2)))).mean()

    return step(loss, spec(32, 128, 128, 3))


@HAIKU.program("haiku_conv1d_depthwise_tcn_train", "train", group="audio", origin="helper")
def _() -> Call:
    def loss(waves: Any) -> Any:
        x = hk.Conv1D(128, 16, stride=8)(waves)
        for power in range(6):
            y = jax.nn.relu(hk.LayerNorm(-1, True, True)(hk.Conv1D(256, 1)(x)))
            x = x + hk.Conv1D(128, 1)(hk.Conv1D(256, 3, rate=2**power, feature_group_count=256)(y))
        return jnp.square(hk.Conv1DTranspose(1, 16, stride=8)(x) - waves).mean()

    return step(loss, spec(8, 32000, 1))


@HAIKU.program("haiku_impala_agent_train", "train", group="rl", origin="example")
def _() -> Call:
    def loss(frames: Any, actions: Any, returns: Any) -> Any:
        x = frames.astype(jnp.float32) / 255
        for channels, stride, size in ((32, 4, 8), (64, 2, 4), (64, 1, 3)):
            x = jax.nn.relu(hk.BatchApply(hk.Conv2D(channels, size, stride=stride))(x))
        x = jax.nn.relu(hk.Linear(512)(x.reshape(*x.shape[:2], -1)))
        core = hk.LSTM(256)
        x, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        values = hk.Linear(1)(x)[..., 0]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(hk.Linear(18)(x)), actions[..., None], -1)[..., 0]
        return jnp.square(values - returns).mean() - (chosen * jax.lax.stop_gradient(returns - values)).mean()

    data = (integers(256, 20, 64, 84, 84, 4, dtype=jnp.uint8), integers(18, 20, 64), spec(20, 64))
    return step(loss, *data, optimizer=optax.chain(optax.clip_by_global_norm(40.0), optax.rmsprop(6e-4)))


@HAIKU.program("haiku_mlp_mixer_train", "train", "f32", origin="helper")
def _() -> Call:
    def loss(images: Any, labels: Any) -> Any:
        x = hk.Conv2D(256, 16, stride=16, padding="VALID")(images).reshape(images.shape[0], -1, 256)
        for _ in range(6):
            y = jnp.swapaxes(hk.LayerNorm(-1, True, True)(x), 1, 2)
            y = hk.Linear(196)(jax.nn.gelu(hk.Linear(384)(y)))
            x = x + jnp.swapaxes(y, 1, 2)
            x = x + hk.Linear(256)(jax.nn.gelu(hk.Linear(1024)(hk.LayerNorm(-1, True, True)(x))))
        return cross_entropy(hk.Linear(1000)(x.mean(1)), labels)

    narrowed(hk.Linear, FULL)
    return step(loss, spec(64, 224, 224, 3), integers(1000, 64))


@HAIKU.program("haiku_conv3d_video_infer", "infer", "f32", origin="helper")
def _() -> Call:
    def logits(clips: Any) -> Any:
        x = clips
        for width, stride in ((32, (1, 2, 2)), (64, (2, 2, 2)), (128, (2, 2, 2))):
            x = jax.nn.relu(hk.Conv3D(width, 3, stride=stride)(x))
        return hk.Linear(400)(x.mean((1, 2, 3)))

    narrowed(hk.Linear, FULL)
    return inference(logits, spec(4, 16, 112, 112, 3))


@HAIKU.program("haiku_perceiver_cross_attention_train", "train", "f32", origin="helper")
def _() -> Call:
    def loss(bytes_: Any, labels: Any) -> Any:
        start = hk.initializers.VarianceScaling(0.1)
        x = hk.Linear(128)(bytes_)
        latents = jnp.broadcast_to(hk.get_parameter("latents", (256, 512), init=jnp.zeros), (bytes_.shape[0], 256, 512))
        latents = latents + hk.MultiHeadAttention(8, 64, w_init=start)(latents, x, x)
        for _ in range(4):
            normal = hk.LayerNorm(-1, True, True)(latents)
            latents = latents + hk.MultiHeadAttention(8, 64, w_init=start)(normal, normal, normal)
            latents = latents + hk.Linear(512)(jax.nn.gelu(hk.Linear(1024)(hk.LayerNorm(-1, True, True)(latents))))
        return cross_entropy(hk.Linear(100)(latents.mean(1)), labels)

    narrowed(hk.Linear, FULL)
    return step(loss, spec(8, 4096, 64), integers(100, 8))
