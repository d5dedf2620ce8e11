"""Whole stacked arrays are transposed where a loop carries them in another order than its surroundings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, KernelKind, LoweredProgram
from tests.lower.programs import kernels, loops, lower_function, spec

BF16 = "bfloat16"
LAYERS, WIDTH = 4, 64


def transposes(lowered: LoweredProgram) -> list[Kernel]:
    return [kernel for kernel in kernels(lowered) if kernel.kind is KernelKind.TRANSPOSE]


def decode(q: jax.Array, cache: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One query of each head over a cache (layers, batch, length, heads, width) that is carried and returned."""

    def body(carry: tuple[jax.Array, jax.Array], layer: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        q, cache = carry
        cache = jax.lax.dynamic_update_slice(cache, q[None, :, None], (layer, 0, 3, 0, 0))
        keys = jax.lax.dynamic_index_in_dim(cache, layer, keepdims=False)
        scores = jnp.einsum("bhd,bthd->bht", q, keys)
        return (jnp.einsum("bht,bthd->bhd", scores, keys), cache), None

    (q, cache), _ = jax.lax.scan(body, (q, cache), jnp.arange(LAYERS))
    return q, cache


@pytest.mark.parametrize(("batch", "expected"), [(2, 2), (1, 0)])
def test_a_cache_that_products_read_by_head_is_transposed_before_and_after_the_loop(batch: int, expected: int) -> None:
    """Batch and heads lie together only where the batch is one: one stride then steps through both."""
    cache = spec(LAYERS, batch, 512, 8, WIDTH, dtype=BF16)
    lowered = lower_function(decode, spec(batch, 8, WIDTH, dtype=BF16), cache)
    found = transposes(lowered)
    size = LAYERS * batch * 512 * 8 * WIDTH * 2
    assert [(kernel.read_bytes, kernel.written_bytes) for kernel in found] == [(size, size)] * expected


def loss(weights: jax.Array, x: jax.Array, *, swapped: bool) -> jax.Array:
    """Layers of `softmax(x w x^T) x`; the scores as their product writes them, or transposed right after it."""

    def body(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        k = x @ w
        scores = jnp.swapaxes(k @ jnp.swapaxes(x, 1, 2), 1, 2) if swapped else x @ jnp.swapaxes(k, 1, 2)
        return jnp.exp(scores) @ x, None

    x, _ = jax.lax.scan(body, x, weights)
    return jnp.sum(x)


@pytest.mark.parametrize(("swapped", "expected"), [(True, 1), (False, 0)])
def test_residuals_in_a_transposed_product_s_order_are_transposed_between_the_loops(
    swapped: bool, expected: int
) -> None:
    def gradient(weights: jax.Array, x: jax.Array) -> jax.Array:
        return jax.grad(loss)(weights, x, swapped=swapped)

    lowered = lower_function(gradient, spec(LAYERS, WIDTH, WIDTH), spec(8, 128, WIDTH))
    size = LAYERS * 8 * 128 * 128 * 4
    found = [kernel for kernel in transposes(lowered) if kernel.written_bytes == size]
    assert len(loops(lowered)) == 2
    assert len(found) == expected


def test_slices_that_a_loop_steps_through_are_cold() -> None:
    def layers(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (x @ w, None), x, weights)[0]

    (loop,) = loops(lower_function(layers, spec(256, 256), spec(LAYERS, 256, 256)))
    cold = {kernel.name for kernel, _ in loop.body.walk() if "cold" in kernel.flags}
    assert cold == {"loop-fusion:dynamic_slice"}
