"""Totals of loop-free JAX functions against XLA's own cost analysis of the same, unoptimised program.

They agree exactly. Where our convention is not XLA's, `test_known_differences` says by how much; XLA also leaves out
what nothing uses and folds `x + 0` and `1 * x` before it counts, which is not the rules' business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.workload.graph import Cost

CostsOf = Callable[..., list[tuple[str, Cost]]]


def _shape(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The pull-back of a given cotangent; `jax.grad`'s own seed is a one that XLA folds into what it multiplies."""

    def pull_back(cotangent: Any, *arguments: Any) -> Any:
        return jax.vjp(function, *arguments)[1](cotangent)

    return pull_back


def _mlp(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights[:-1]:
        x = jnp.maximum(x @ weight, 0)
    return (x @ weights[-1]) ** 2


def _layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8.0
    positions = jnp.arange(q.shape[1])
    masked = jnp.where(positions[:, None] >= positions, scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(masked, axis=-1), v)


def _conv(**settings: Any) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def apply(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, kernel, dimension_numbers=("NHWC", "HWIO", "NHWC"), **settings)

    return apply


def _max_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


def _loss(logits: jax.Array, labels: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -jnp.mean(picked)


def _embedding(table: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.tanh(table[tokens])


_WEIGHTS = [_shape(32, 64), _shape(64, 64), _shape(64, 8)]
_IMAGE, _KERNEL = _shape(2, 17, 17, 8), _shape(3, 3, 8, 16)
_HEADS = _shape(2, 32, 4, 16)

_CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (_mlp, (_WEIGHTS, _shape(16, 32))),
    "mlp gradient": (_gradient(_mlp), (_shape(16, 8), _WEIGHTS, _shape(16, 32))),
    "softmax": (jax.nn.softmax, (_shape(16, 128),)),
    "log softmax loss gradient": (
        lambda g, x, i: _gradient(lambda x: _loss(x, i))(g, x),
        (_shape(), _shape(16, 128), _shape(16, dtype=jnp.int32)),
    ),
    "gelu": (jax.nn.gelu, (_shape(16, 128),)),
    "exact gelu": (lambda x: jax.nn.gelu(x, approximate=False), (_shape(16, 128),)),
    "silu in bf16": (jax.nn.silu, (_shape(16, 128, dtype=jnp.bfloat16),)),
    "layer norm": (_layer_norm, (_shape(16, 128), _shape(128))),
    "layer norm gradient": (_gradient(_layer_norm), (_shape(16, 128), _shape(16, 128), _shape(128))),
    "attention": (_attention, (_HEADS, _HEADS, _HEADS)),
    "attention gradient": (_gradient(_attention), (_HEADS, _HEADS, _HEADS, _HEADS)),
    "convolution": (_conv(window_strides=(2, 2), padding="SAME"), (_IMAGE, _KERNEL)),
    "convolution gradient": (
        _gradient(_conv(window_strides=(2, 2), padding="SAME")),
        (_shape(2, 9, 9, 16), _IMAGE, _KERNEL),
    ),
    "dilated convolution gradient": (
        _gradient(_conv(window_strides=(2, 1), padding=((3, 2), (0, 4)), rhs_dilation=(2, 3))),
        (_shape(2, 9, 15, 16), _IMAGE, _KERNEL),
    ),
    "transposed convolution": (
        _conv(window_strides=(1, 1), padding=((2, 1), (-1, 2)), lhs_dilation=(2, 3)),
        (_IMAGE, _KERNEL),
    ),
    "grouped convolution gradient": (
        _gradient(_conv(window_strides=(1, 1), padding="SAME", feature_group_count=4)),
        (_shape(2, 17, 17, 16), _IMAGE, _shape(3, 3, 2, 16)),
    ),
    "batch-grouped convolution": (
        _conv(window_strides=(1, 1), padding="VALID", batch_group_count=2),
        (_IMAGE, _KERNEL),
    ),
    "max pool gradient": (_gradient(_max_pool), (_shape(2, 9, 9, 8), _IMAGE)),
    "embedding gradient": (
        lambda g, table, i: _gradient(lambda t: _embedding(t, i))(g, table),
        (_shape(4, 8, 16), _shape(1000, 16), _shape(4, 8, dtype=jnp.int32)),
    ),
    "associative scan": (lambda x: lax.associative_scan(jnp.multiply, x), (_shape(37, 3),)),
    "sort": (lambda x: jnp.sort(x, axis=-1), (_shape(8, 100),)),
    "argsort": (jnp.argsort, (_shape(128),)),
    "argmax": (lambda x: jnp.argmax(x, axis=0), (_shape(16, 64),)),
    "logsumexp": (jax.scipy.special.logsumexp, (_shape(16, 64),)),
    "standard deviation": (lambda x: jnp.std(x, axis=(0, 2)), (_shape(4, 8, 16),)),
    "scatter add": (
        lambda x, i, u: x.at[i].add(u),
        (_shape(50, 8), _shape(7, dtype=jnp.int32), _shape(7, 8)),
    ),
    "scatter max": (
        lambda x, i, u: x.at[i, 2:4].max(u),
        (_shape(50, 8), _shape(7, dtype=jnp.int32), _shape(7, 2)),
    ),
    "one-hot product": (
        lambda i, w: jax.nn.one_hot(i, 32) @ w,
        (_shape(16, dtype=jnp.int32), _shape(32, 8)),
    ),
    "einsum": (lambda a, b: jnp.einsum("abc,cde,b->ade", a, b, a[0, :, 0]), (_shape(3, 4, 5), _shape(5, 6, 7))),
    "integer product": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        (_shape(16, 32, dtype=jnp.int8), _shape(32, 8, dtype=jnp.int8)),
    ),
    "rotary embedding": (
        lambda x, t: x * jnp.cos(t[:, None, None]) + jnp.roll(x, 1, axis=-1) * jnp.sin(t[:, None, None]),
        (_shape(32, 4, 16), _shape(32)),
    ),
    "integers": (lambda i: ((i // 7) % 5) ^ (i << 2), (_shape(64, dtype=jnp.int32),)),
    "powers and roots": (lambda x: x**1.7 + jnp.cbrt(x) + jnp.sqrt(x) + jnp.arctan2(x, 2.0), (_shape(64),)),
    "real fft": (jnp.fft.rfft, (_shape(8, 64),)),
    "adam step": (
        lambda p, g, m, v: p - 1e-3 * (0.9 * m + 0.1 * g) / (jnp.sqrt(0.99 * v + 0.01 * g * g) + 1e-8),
        (_shape(64, 64), _shape(64, 64), _shape(64, 64), _shape(64, 64)),
    ),
}


def _totals(costs: list[tuple[str, Cost]]) -> tuple[float, float]:
    flops = sum(cost.matrix_flops + cost.vector_flops for _, cost in costs)
    return flops, sum(cost.transcendentals for _, cost in costs)


def _both(function: Callable[..., Any], arguments: tuple[Any, ...], costs_of: CostsOf) -> tuple[Any, Any]:
    lowered = jax.jit(function).lower(*arguments)
    analysis = lowered.cost_analysis() or {}
    ours = _totals(costs_of(lowered.compiler_ir(), live_only=True))
    return ours, (analysis.get("flops", 0.0), analysis.get("transcendentals", 0.0))


@pytest.mark.parametrize("name", _CASES)
def test_agrees_with_xla(name: str, costs_of: CostsOf) -> None:
    ours, xla = _both(*_CASES[name], costs_of)
    assert ours == pytest.approx(xla, rel=1e-6)


_COMPLEX = _shape(64, dtype=jnp.complex64)
_SQUARE = _shape(8, 8, dtype=jnp.complex64)

# name: function, arguments, our FLOPs, XLA's FLOPs.
_DIFFERENCES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float, float]] = {
    "a bitcast is a view, not a FLOP": (lambda x: lax.bitcast_convert_type(x, jnp.int32), (_shape(64),), 0, 64),
    "top-k compares with a heap": (lambda x: lax.top_k(x, 8), (_shape(64),), 64 * 4, 0),
    "a complex product is six real FLOPs": (lambda x, y: x * y, (_COMPLEX, _COMPLEX), 6 * 64, 64),
    "a complex multiply-add is eight": (jnp.matmul, (_SQUARE, _SQUARE), 8 * 512, 2 * 512),
    "stages of a 2-d FFT add up": (jnp.fft.fft2, (_SQUARE,), 8 * (3 + 3) * 64, 8 * (3 * 3) * 64),
}


@pytest.mark.parametrize("name", _DIFFERENCES)
def test_known_differences(name: str, costs_of: CostsOf) -> None:
    function, arguments, ours, xla = _DIFFERENCES[name]
    (flops, _), (xla_flops, _) = _both(function, arguments, costs_of)
    assert (flops, xla_flops) == (ours, xla)


def test_a_cumulative_sum_is_a_scan_whichever_way_jax_writes_it(costs_of: CostsOf) -> None:
    # JAX 0.10 writes a window reduction, for which XLA counts 64 additions per element; newer ones write chlo.scan.
    (flops, _), _ = _both(lambda x: jnp.cumsum(x, axis=1), (_shape(8, 64),), costs_of)
    assert flops == 8 * 64
