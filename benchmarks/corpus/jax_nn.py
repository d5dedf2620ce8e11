"""`jax.nn`: attention with its masks, activations, normalisers, scaled products."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

NN = Catalogue("jax.nn", "helper", "llm")
CATALOGUES = [NN]
BF16, F16 = jnp.bfloat16, jnp.float16


def attention(
    mode: str, dtype: Any, batch: int, length: int, heads: int, groups: int, size: int, **options: Any
) -> Call:
    """Attention, forward or with the gradients of its operands."""
    call = partial(jax.nn.dot_product_attention, implementation="xla", **options)
    query, key = spec(batch, length, heads, size, dtype=dtype), spec(batch, length, groups, size, dtype=dtype)
    if mode == "infer":
        return call, (query, key, key)
    loss = lambda q, k, v: jnp.square(call(q, k, v).astype(jnp.float32)).mean()  # noqa: E731
    return jax.grad(loss, argnums=(0, 1, 2)), (query, key, key)


for name, mode, dtype, sizes, options in (
    ("causal_gqa", "infer", "bf16", (4, 2048, 32, 8, 128), {"is_causal": True}),
    ("causal_bf16", "train", "bf16", (4, 2048, 16, 16, 64), {"is_causal": True}),
    ("causal_f16", "train", "f16", (2, 1024, 16, 16, 64), {"is_causal": True}),
    ("window", "infer", "f32", (2, 2048, 8, 8, 64), {"local_window_size": (256, 0)}),
    ("encoder", "infer", "f16", (16, 512, 12, 12, 64), {}),
):
    kept = {"bf16": BF16, "f16": F16, "f32": jnp.float32}[dtype]
    NN.add(f"nn_attention_{name}_{mode}", partial(attention, mode, kept, *sizes, **options), mode, dtype)


def decoding(batch: int, context: int, heads: int, groups: int) -> Call:
    """A token's attention over a cache, rows of which are valid up to each sequence's length."""

    def turn(query: Any, keys: Any, values: Any, lengths: Any) -> Any:
        return jax.nn.dot_product_attention(query, keys, values, key_value_seq_lengths=lengths, implementation="xla")

    cache = spec(batch, context, groups, 128, dtype=BF16)
    return turn, (spec(batch, 1, heads, 128, dtype=BF16), cache, cache, integers(context, batch))


for batch, context, heads, groups in ((1, 32768, 32, 8), (16, 4096, 32, 8), (64, 2048, 16, 16)):
    NN.add(f"nn_attention_decode_b{batch}", partial(decoding, batch, context, heads, groups), "decode", "bf16")


@NN.program("nn_activations_infer", "infer", "bf16", group="misc")
def _() -> Call:
    names = (
        "relu",
        "gelu",
        "silu",
        "mish",
        "elu",
        "selu",
        "celu",
        "softplus",
        "hard_swish",
        "squareplus",
        "log_sigmoid",
    )
    return (lambda x: [getattr(jax.nn, name)(x) for name in names]), (spec(2048, 4096, dtype=BF16),)


@NN.program("nn_normalisers_train", "train", "f32", group="misc")
def _() -> Call:
    def loss(x: Any) -> Any:
        y = jax.nn.standardize(x, axis=-1)
        return (jax.nn.logsumexp(y, axis=0).sum() + jax.nn.softmax(y, axis=1) ** 2).mean() + jax.nn.log_softmax(
            y
        ).mean()

    return jax.grad(loss), (spec(4096, 4096),)


@NN.program("nn_one_hot_lookup_train", "train", "f16", group="recsys")
def _() -> Call:
    def loss(table: Any, rows: Any) -> Any:
        return jnp.square(jax.nn.one_hot(rows, table.shape[0], dtype=table.dtype) @ table).astype(jnp.float32).mean()

    return jax.value_and_grad(loss), (spec(4096, 512, dtype=F16), integers(4096, 16384))


@NN.program("nn_scaled_f8_layers_infer", "infer", "f8")
def _() -> Call:
    narrow = jnp.float8_e4m3fn

    def layers(x: Any, weights: Any, scales: Any) -> Any:
        for weight, scale in zip(weights, scales, strict=True):
            most = jnp.max(jnp.abs(x), axis=-1, keepdims=True).astype(jnp.float32) / 448.0
            small = (x.astype(jnp.float32) / most).astype(narrow)
            x = jax.nn.gelu((jnp.dot(small, weight, preferred_element_type=jnp.float32) * most * scale).astype(BF16))
        return x

    return layers, (spec(4096, 4096, dtype=BF16), [spec(4096, 4096, dtype=narrow)] * 3, [spec(4096)] * 3)
