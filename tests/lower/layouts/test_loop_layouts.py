"""Whole stacked arrays are transposed where a loop carries them in another order than its surroundings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, KernelKind, LoweredProgram
from meshcast.workload.graph import Reduction
from tests.lower.programs import kernels, loops, lower_function, spec

BF16 = "bfloat16"
LAYERS, WIDTH = 4, 64


def transposes(lowered: LoweredProgram) -> list[Kernel]:
    return [kernel for kernel in kernels(lowered) if kernel.kind is KernelKind.TRANSPOSE]


def decode(q: jax.Array, cache: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Queries (batch, heads, some, width) over a cache (layers, batch, length, heads, width), carried and returned."""

    def body(carry: tuple[jax.Array, jax.Array], layer: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        q, cache = carry
        cache = jax.lax.dynamic_update_slice(cache, q[None, :, None, :, 0], (layer, 0, 3, 0, 0))
        keys = jax.lax.dynamic_index_in_dim(cache, layer, keepdims=False)
        scores = jnp.einsum("bhgd,bthd->bhgt", q, keys)
        return (jnp.einsum("bhgt,bthd->bhgd", scores, keys), cache), None

    (q, cache), _ = jax.lax.scan(body, (q, cache), jnp.arange(LAYERS))
    return q, cache


@pytest.mark.parametrize(("batch", "queries", "expected"), [(2, 4, 2), (1, 4, 0), (2, 1, 0)])
def test_a_cache_that_products_read_by_head_is_transposed_before_and_after_the_loop(
    batch: int, queries: int, expected: int
) -> None:
    """Batch and heads lie together only where the batch is one; products with one vector are sums, which read any order."""
    cache = spec(LAYERS, batch, 512, 8, WIDTH, dtype=BF16)
    lowered = lower_function(decode, spec(batch, 8, queries, WIDTH, dtype=BF16), cache)
    found = transposes(lowered)
    size = LAYERS * batch * 512 * 8 * WIDTH * 2
    assert [(kernel.read_bytes, kernel.written_bytes) for kernel in found] == [(size, size)] * expected


def decode_in_turn(q: jax.Array, cache: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same with a layer's part of the cache handed in and out: it is updated between its slice and its products."""

    def body(q: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.lax.dynamic_update_slice(keys, q[:, None, :, 0], (0, 3, 0, 0))
        scores = jnp.einsum("bhgd,bthd->bhgt", q, keys)
        return jnp.einsum("bhgt,bthd->bhgd", scores, keys), keys

    return jax.lax.scan(body, q, cache)


@pytest.mark.parametrize(("batch", "expected"), [(2, 2), (1, 0)])
def test_wishes_pass_through_the_update_of_a_part(batch: int, expected: int) -> None:
    """The cache is transposed as it enters; what the loop stacks lies as its parts do, and is transposed as it leaves."""
    cache = spec(LAYERS, batch, 512, 8, WIDTH, dtype=BF16)
    lowered = lower_function(decode_in_turn, spec(batch, 8, 4, WIDTH, dtype=BF16), cache)
    size = LAYERS * batch * 512 * 8 * WIDTH * 2
    assert [(kernel.read_bytes, kernel.written_bytes) for kernel in transposes(lowered)] == [(size, size)] * expected


def test_a_part_that_is_updated_and_handed_on_is_written_twice() -> None:
    """As it was, for the stack, and as it is, for the products: one kernel cuts it out and updates it."""
    lowered = lower_function(
        decode_in_turn, spec(1, 8, 4, WIDTH, dtype=BF16), spec(LAYERS, 1, 512, 8, WIDTH, dtype=BF16)
    )
    (loop,) = loops(lowered)
    body = [step for step in loop.body.steps if isinstance(step, Kernel)]
    (cut,) = [kernel for kernel in body if "stablehlo.dynamic_slice" in kernel.ops and len(kernel.writes) == 2]
    part = 512 * 8 * WIDTH * 2
    assert (cut.written_bytes, cut.updates) == (2 * part, ())
    (stacked,) = [kernel for kernel in body if kernel.updates]
    assert cut.writes[0] in stacked.reads
    assert any(cut.writes[1] in kernel.reads for kernel in body if kernel.kind is KernelKind.GEMM)


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


def attend(cache: jax.Array, q: jax.Array, new: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Queries over a cache (batch, length, heads, width) with a new position, which is returned."""
    cache = jax.lax.dynamic_update_slice(cache, new, (0, 3, 0, 0))
    return cache, jnp.einsum("bhgd,bthd->bhgt", q, cache)


def attend_by_head(cache: jax.Array, q: jax.Array, new: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same over a cache (batch, heads, length, width)."""
    cache = jax.lax.dynamic_update_slice(cache, jnp.swapaxes(new, 1, 2), (0, 0, 3, 0))
    return cache, jnp.einsum("bhgd,bhtd->bhgt", q, cache)


def test_a_cache_that_is_an_argument_is_transposed_copied_and_transposed_back() -> None:
    """As XLA compiles it: the update is made on a copy, since the transpose back reads the same source."""
    q, new = spec(2, 8, 4, WIDTH, dtype=BF16), spec(2, 1, 8, WIDTH, dtype=BF16)
    lowered = lower_function(attend, spec(2, 512, 8, WIDTH, dtype=BF16), q, new, options={"donate_argnums": (0,)})
    size = 2 * 512 * 8 * WIDTH * 2
    assert [kernel.written_bytes for kernel in transposes(lowered)] == [size, size]
    assert [kernel.written_bytes for kernel in kernels(lowered) if kernel.ops == ("copy",)] == [size]


def test_a_cache_that_is_scattered_into_is_transposed_and_transposed_back() -> None:
    """Every sequence at a place of its own: one scatter, between the two transposes."""

    def scattered(cache: jax.Array, q: jax.Array, new: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        cache = jax.vmap(lambda c, n, p: jax.lax.dynamic_update_slice(c, n, (p, 0, 0)))(cache, new, at)
        return cache, jnp.einsum("bhgd,bthd->bhgt", q, cache)

    q, new = spec(2, 8, 4, WIDTH, dtype=BF16), spec(2, 1, 8, WIDTH, dtype=BF16)
    cache, at = spec(2, 512, 8, WIDTH, dtype=BF16), spec(2, dtype="int32")
    made = kernels(lower_function(scattered, cache, q, new, at, options={"donate_argnums": (0,)}))
    kinds = [kernel.kind.value for kernel in made]
    size = 2 * 512 * 8 * WIDTH * 2
    assert [kernel.written_bytes for kernel in made if kernel.kind.value == "transpose"] == [size, size]
    assert kinds.count("scatter") == 1
    first, last = kinds.index("transpose"), len(kinds) - 1 - kinds[::-1].index("transpose")
    assert first < kinds.index("scatter") < last
    assert not [kernel for kernel in made if kernel.ops == ("copy",)]


def test_a_cache_with_heads_before_positions_is_updated_where_it_lies() -> None:
    q, new = spec(2, 8, 4, WIDTH, dtype=BF16), spec(2, 1, 8, WIDTH, dtype=BF16)
    lowered = lower_function(
        attend_by_head, spec(2, 8, 512, WIDTH, dtype=BF16), q, new, options={"donate_argnums": (0,)}
    )
    assert not transposes(lowered)
    assert not [kernel for kernel in kernels(lowered) if kernel.ops == ("copy",)]


def softmax_over_keys(keys: jax.Array, q: jax.Array) -> jax.Array:
    """Shares of keys (batch, heads, length, width) for queries, multiplied as JAX does it: keys first, then transposed."""
    scores = jnp.swapaxes(jnp.einsum("bhtd,bhgd->bhtg", keys, q), 2, 3).astype("float32")
    return jnp.einsum("bhgt,bhtd->bhgd", jax.nn.softmax(scores).astype(keys.dtype), keys)


def test_a_product_whose_rows_and_columns_change_places_is_that_of_its_operands_swapped() -> None:
    """XLA 0.11.2 writes the scores as (batch, heads, queries, keys) at once, and a softmax of them is one kernel."""
    lowered = lower_function(softmax_over_keys, spec(2, 8, 512, WIDTH, dtype=BF16), spec(2, 8, 4, WIDTH, dtype=BF16))
    kinds = [kernel.kind for kernel in kernels(lowered)]
    assert kinds == [KernelKind.GEMM, KernelKind.REDUCTION, KernelKind.GEMM]
    assert [kernel.geometry for kernel in kernels(lowered)][1] == Reduction(shape=(2, 8, 4, 512), dims=(3,))


def softmax_with_queries_first(keys: jax.Array, q: jax.Array) -> jax.Array:
    """The same with the queries before the heads, which no product of swapped operands gives."""
    scores = jnp.transpose(jnp.einsum("bhtd,bhgd->bhtg", keys, q), (0, 3, 1, 2)).astype("float32")
    return jnp.einsum("bght,bhtd->bhgd", jax.nn.softmax(scores).astype(keys.dtype), keys)


def test_a_softmax_of_a_transposed_product_reduces_along_columns() -> None:
    """Two reductions with 4 queries innermost, and a pass: no row of scores lies together."""
    given = spec(2, 8, 512, WIDTH, dtype=BF16), spec(2, 8, 4, WIDTH, dtype=BF16)
    lowered = lower_function(softmax_with_queries_first, *given)
    reductions = [kernel.geometry for kernel in kernels(lowered) if kernel.kind is KernelKind.REDUCTION]
    assert reductions == [Reduction(shape=(2, 8, 512, 4), dims=(2,))] * 2
    assert [kernel.written_bytes for kernel in transposes(lowered)] == []


def test_a_transposed_product_that_is_returned_is_written_in_order() -> None:
    def scores(keys: jax.Array, q: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = jnp.transpose(jnp.einsum("bhtd,bhgd->bhtg", keys, q), (0, 3, 1, 2))
        return found, found.sum(-1)

    lowered = lower_function(scores, spec(2, 8, 512, WIDTH, dtype=BF16), spec(2, 8, 4, WIDTH, dtype=BF16))
    assert [kernel.written_bytes for kernel in transposes(lowered)] == [2 * 8 * 512 * 4 * 2]
