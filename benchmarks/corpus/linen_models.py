"""Flax Linen: models after its examples (mnist, vae, seq2seq, lm1b, ppo, graphs, sst2), and its modules put to work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cross_entropy, integers, spec

LINEN = Catalogue("flax.linen", "example", "vision")
CATALOGUES = [LINEN]
BF16, F16 = jnp.bfloat16, jnp.float16


def weights_of(module: nn.Module, *data: Any, **options: Any) -> Any:
    """The shapes of all collections of a module."""
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    return jax.eval_shape(partial(module.init, rngs, **options), *data)


def inference(module: nn.Module, *data: Any, **options: Any) -> Call:
    """A module's call with its variables as the first argument."""
    return (lambda weights, *given: module.apply(weights, *given, **options)), (
        weights_of(module, *data, **options),
        *data,
    )


def step(
    module: nn.Module, loss: Callable[..., Any], inputs: Any, *targets: Any, optimizer: Any = None, **options: Any
) -> Call:
    """A training step: `loss(output, *targets)`, dropout from a key, batch statistics carried along."""
    optimizer = optimizer or optax.adamw(1e-3)
    weights = weights_of(module, *inputs, **options)
    params, rest = weights.pop("params"), weights

    def stepped(params: Any, rest: Any, state: Any, key: Any, inputs: Any, *targets: Any) -> Any:
        def lossy(params: Any) -> Any:
            out, new = module.apply(
                {"params": params, **rest}, *inputs, rngs={"dropout": key}, mutable=list(rest), **options
            )
            return loss(out, *targets), new

        (value, new), grads = jax.value_and_grad(lossy, has_aux=True)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), new, state, value

    return stepped, (params, rest, jax.eval_shape(optimizer.init, params), KEY, inputs, *targets)


class Mnist(nn.Module):
    """The small convolutional network of the mnist example."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Logits of ten classes."""
        for width in (32, 64):
            x = nn.avg_pool(nn.relu(nn.Conv(width, (3, 3))(x)), (2, 2), strides=(2, 2))
        return nn.Dense(10)(nn.relu(nn.Dense(256)(x.reshape(x.shape[0], -1))))


LINEN.add(
    "linen_mnist_train",
    lambda: step(Mnist(), cross_entropy, (spec(1024, 28, 28, 1),), integers(10, 1024), optimizer=optax.sgd(0.1, 0.9)),
    "train",
)


class Vae(nn.Module):
    """The variational autoencoder of the vae example."""

    latents: int = 64

    @nn.compact
    def __call__(self, x: Any, key: Any) -> Any:
        """The reconstruction's logits, and mean and log-variance of the latents."""
        hidden = nn.relu(nn.Dense(1024)(nn.relu(nn.Dense(2048)(x))))
        mean, spread = nn.Dense(self.latents)(hidden), nn.Dense(self.latents)(hidden)
        code = mean + jnp.exp(0.5 * spread) * jax.random.normal(key, spread.shape)
        return nn.Dense(x.shape[-1])(nn.relu(nn.Dense(2048)(nn.relu(nn.Dense(1024)(code))))), mean, spread


@LINEN.program("linen_vae_train", "train", group="probabilistic")
def _() -> Call:
    def loss(out: Any, images: Any) -> Any:
        logits, mean, spread = out
        error = optax.sigmoid_binary_cross_entropy(logits, images).sum(-1)
        return (error - 0.5 * jnp.sum(1 + spread - mean**2 - jnp.exp(spread), -1)).mean()

    return step(Vae(), loss, (spec(4096, 784), KEY), spec(4096, 784))


class Seq2Seq(nn.Module):
    """Encoder and teacher-forced decoder of the seq2seq example."""

    @nn.compact
    def __call__(self, source: Any, target: Any) -> Any:
        """Logits of the target's next characters."""
        carry, _ = nn.RNN(nn.LSTMCell(512), return_carry=True)(source)
        return nn.Dense(target.shape[-1])(nn.RNN(nn.LSTMCell(512))(target, initial_carry=carry))


LINEN.add(
    "linen_seq2seq_train",
    lambda: step(
        Seq2Seq(),
        lambda out, y: optax.softmax_cross_entropy(out, y).mean(),
        (spec(64, 48, 64), spec(64, 48, 64)),
        spec(64, 48, 64),
    ),
    "train",
    group="sequence",
)


class Bidirectional(nn.Module):
    """Two directions of GRUs over embedded words, as the sst2 example has with LSTMs."""

    @nn.compact
    def __call__(self, tokens: Any, lengths: Any) -> Any:
        """Logits of two classes."""
        x = nn.Embed(20000, 300)(tokens)
        x = nn.Bidirectional(nn.RNN(nn.GRUCell(256)), nn.RNN(nn.OptimizedLSTMCell(256)))(x, seq_lengths=lengths)
        x = nn.Dense(1)(jnp.tanh(nn.Dense(256)(x))) * x
        return nn.Dense(2)(x.sum(1))


LINEN.add(
    "linen_sst2_bidirectional_infer",
    lambda: inference(Bidirectional(), integers(20000, 256, 64), integers(64, 256)),
    "infer",
    group="sequence",
)


class Block(nn.Module):
    """A block of the lm1b example's transformer, which decodes with a cache where told to."""

    dim: int
    heads: int
    dtype: Any
    decode: bool = False
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: Any, mask: Any) -> Any:
        """The block's output."""
        still = self.dropout == 0
        y = nn.LayerNorm(dtype=self.dtype)(x)
        y = nn.MultiHeadDotProductAttention(
            self.heads, self.dtype, decode=self.decode, use_bias=False, deterministic=True
        )(y, y, mask=mask)
        x = x + nn.Dropout(self.dropout)(y, deterministic=still)
        y = nn.gelu(nn.Dense(4 * self.dim, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x)))
        return x + nn.Dropout(self.dropout)(nn.Dense(self.dim, dtype=self.dtype)(y), deterministic=still)


class Lm1b(nn.Module):
    """The lm1b example's language model, of any size."""

    vocabulary: int = 30000
    dim: int = 512
    layers: int = 6
    heads: int = 8
    dtype: Any = jnp.float32
    decode: bool = False
    dropout: float = 0.0

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        """Logits of the next tokens."""
        embedding = nn.Embed(self.vocabulary, self.dim, dtype=self.dtype)
        x = embedding(tokens)
        mask = None if self.decode else nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            x = Block(self.dim, self.heads, self.dtype, self.decode, self.dropout)(x, mask)
        return embedding.attend(nn.LayerNorm(dtype=self.dtype)(x)).astype(jnp.float32)


@LINEN.program("linen_lm1b_train", "train", "mixed", group="llm")
def _() -> Call:
    model = Lm1b(dtype=BF16, dropout=0.1)
    return step(model, cross_entropy, (integers(30000, 64, 256),), integers(30000, 64, 256))


@LINEN.program("linen_lm1b_f16_infer", "infer", "f16", group="llm")
def _() -> Call:
    return inference(Lm1b(dtype=F16), integers(30000, 16, 512))


def decoding(batch: int, dtype: Any, **sizes: Any) -> Call:
    """One token through a model with a cache, after the example's way to decode."""
    model = Lm1b(dtype=dtype, decode=True, **sizes)
    weights = weights_of(model, integers(30000, batch, 1024))
    cache = weights.pop("cache")

    def turn(weights: Any, cache: Any, tokens: Any) -> Any:
        logits, new = model.apply({**weights, "cache": cache}, tokens, mutable=["cache"])
        return jnp.argmax(logits[:, -1], -1), new["cache"]

    return turn, (weights, cache, integers(30000, batch, 1))


LINEN.add(
    "linen_lm1b_decode_b1", partial(decoding, 1, BF16, dim=1024, layers=12, heads=16), "decode", "bf16", group="llm"
)
LINEN.add(
    "linen_lm1b_decode_b16", partial(decoding, 16, BF16, dim=1024, layers=12, heads=16), "decode", "bf16", group="llm"
)
LINEN.add("linen_lm1b_decode_b64", partial(decoding, 64, jnp.float32), "decode", "f32", group="llm")


class ActorCritic(nn.Module):
    """The Atari network of the ppo example."""

    @nn.compact
    def __call__(self, frames: Any) -> Any:
        """Log-probabilities of the actions, and the state's value."""
        x = frames.astype(jnp.float32) / 255.0
        for width, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = nn.relu(nn.Conv(width, (size, size), strides=(stride, stride))(x))
        x = nn.relu(nn.Dense(512)(x.reshape(x.shape[0], -1)))
        return nn.log_softmax(nn.Dense(6)(x)), nn.Dense(1)(x)


@LINEN.program("linen_ppo_atari_train", "train", group="rl")
def _() -> Call:
    def loss(out: Any, actions: Any, old: Any, returns: Any, advantages: Any) -> Any:
        logs, values = out
        chosen = jnp.take_along_axis(logs, actions[:, None], 1)[:, 0]
        ratio = jnp.exp(chosen - old)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.9, 1.1) * advantages)
        entropy = -(logs * jnp.exp(logs)).sum(1).mean()
        return -clipped.mean() + 0.5 * jnp.square(returns - values[:, 0]).mean() - 0.01 * entropy

    frames = integers(256, 1024, 84, 84, 4, dtype=jnp.uint8)
    return step(ActorCritic(), loss, (frames,), integers(6, 1024), spec(1024), spec(1024), spec(1024))


class Residual(nn.Module):
    """The residual network of the imagenet example, with bottlenecks."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    dtype: Any = jnp.float32
    training: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Logits of a thousand classes."""
        norm = partial(nn.BatchNorm, use_running_average=not self.training, momentum=0.9, dtype=self.dtype)
        conv = partial(nn.Conv, use_bias=False, dtype=self.dtype)
        x = nn.max_pool(nn.relu(norm()(conv(64, (7, 7), (2, 2))(x))), (3, 3), strides=(2, 2), padding="SAME")
        for stage, depth in enumerate(self.depths):
            for block in range(depth):
                width, stride = 64 * 2**stage, (2, 2) if stage > 0 and block == 0 else (1, 1)
                y = nn.relu(norm()(conv(width, (1, 1))(x)))
                y = norm(scale_init=nn.initializers.zeros)(
                    conv(4 * width, (1, 1))(nn.relu(norm()(conv(width, (3, 3), stride)(y))))
                )
                x = nn.relu(y + (x if x.shape == y.shape else norm()(conv(4 * width, (1, 1), stride)(x))))
        return nn.Dense(1000, dtype=self.dtype)(x.mean((1, 2)))


@LINEN.program("linen_imagenet_resnet50_train", "train", "mixed")
def _() -> Call:
    images = spec(64, 224, 224, 3, dtype=BF16)
    return step(
        Residual(dtype=BF16), cross_entropy, (images,), integers(1000, 64), optimizer=optax.sgd(0.1, 0.9, nesterov=True)
    )


@LINEN.program("linen_imagenet_resnet50_infer", "infer", "f16")
def _() -> Call:
    return inference(Residual(dtype=F16, training=False), spec(128, 224, 224, 3, dtype=F16))


class Tower(nn.Module):
    """Normalisations, weight norm, local and transposed convolutions in one tower."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """An image of the input's size."""
        x = nn.GroupNorm(8)(nn.Conv(64, (3, 3), kernel_dilation=2)(x))
        x = nn.WeightNorm(nn.Conv(64, (3, 3), feature_group_count=4))(nn.silu(x))
        x = nn.RMSNorm()(nn.Conv(128, (4, 4), strides=(2, 2), padding="CIRCULAR")(x))
        x = nn.InstanceNorm()(nn.ConvTranspose(64, (4, 4), strides=(2, 2))(nn.swish(x)))
        return nn.ConvLocal(3, (1, 1))(x)


LINEN.add("linen_norms_tower_infer", lambda: inference(Tower(), spec(16, 64, 64, 32)), "infer", origin="helper")


class Experts(nn.Module):
    """A mixture of experts by one-hot dispatch, in the manner of the switch transformer."""

    experts: int = 8
    capacity: int = 640

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """The tokens' outputs."""
        gates = nn.softmax(nn.Dense(self.experts, dtype=jnp.float32)(x))
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), self.experts)
        place = jnp.cumsum(chosen, 0) * chosen - 1
        dispatch = (chosen[..., None] * jax.nn.one_hot(place, self.capacity)).astype(BF16)
        inside = jnp.einsum("tec,td->ecd", dispatch, x)
        dense = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
        hidden = dense(x.shape[-1], dtype=BF16)(nn.relu(dense(4 * x.shape[-1], dtype=BF16)(inside)))
        return jnp.einsum("tec,ecd->td", dispatch, hidden) * gates.max(-1, keepdims=True).astype(BF16)


LINEN.add(
    "linen_switch_moe_train",
    lambda: step(Experts(), lambda out: jnp.square(out.astype(jnp.float32)).mean(), (spec(4096, 768, dtype=BF16),)),
    "train",
    "mixed",
    group="llm",
    origin="helper",
)


class MaskedBlocks(nn.Module):
    """A gated causal convolution network over pixels, in the manner of the pixelcnn example."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Logits of 256 values a pixel."""
        x = nn.Conv(96, (3, 3), padding=((2, 0), (1, 1)))(x)
        for _ in range(5):
            y = nn.Conv(192, (2, 3), padding=((1, 0), (1, 1)))(nn.elu(jnp.concatenate([x, -x], -1)))
            a, b = jnp.split(y, 2, -1)
            x = x + a * nn.sigmoid(b)
        return nn.Conv(256, (1, 1))(nn.elu(x))


LINEN.add(
    "linen_pixelcnn_train",
    lambda: step(MaskedBlocks(), cross_entropy, (spec(32, 32, 32, 3),), integers(256, 32, 32, 32)),
    "train",
)


class Wmt(nn.Module):
    """Encoder and decoder with cross-attention, after the wmt example."""

    @nn.compact
    def __call__(self, source: Any, target: Any) -> Any:
        """Logits of the target's next tokens."""
        table = nn.Embed(32000, 512, dtype=BF16)
        x, y = table(source), table(target)
        for _ in range(3):
            x = Block(512, 8, BF16)(x, None)
        mask = nn.make_causal_mask(target)
        for _ in range(3):
            y = Block(512, 8, BF16)(y, mask)
            y = y + nn.MultiHeadDotProductAttention(8, BF16, deterministic=True)(nn.LayerNorm(dtype=BF16)(y), x)
        return table.attend(y).astype(jnp.float32)


@LINEN.program("linen_wmt_cross_train", "train", "mixed", group="llm")
def _() -> Call:
    tokens = integers(32000, 32, 128)
    return step(Wmt(), cross_entropy, (tokens, tokens), tokens)


class Gates(nn.Module):
    """Graph convolutions over an adjacency in one array, after the ogbg example's dense form."""

    @nn.compact
    def __call__(self, nodes: Any, near: Any) -> Any:
        """A number a graph."""
        x = nn.Dense(256)(nodes)
        for _ in range(5):
            message = jnp.einsum("bij,bjd->bid", near, nn.relu(nn.Dense(256)(x)))
            x = nn.LayerNorm()(x + nn.relu(nn.Dense(256)(jnp.concatenate([x, message], -1))))
        return nn.Dense(1)(x.mean(1))


@LINEN.program("linen_dense_graphs_train", "train", "f32", group="graph", origin="helper")
def _() -> Call:
    loss = lambda out, y: jnp.square(out[:, 0] - y).mean()  # noqa: E731
    return step(Gates(), loss, (spec(256, 64, 32), spec(256, 64, 64)), spec(256))
