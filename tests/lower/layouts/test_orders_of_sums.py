"""Sums of products with vectors lie as their matrix does: softmaxes go along columns where that lies by position first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Reduction
from tests.lower.programs import kernels, lower_function, spec

BATCH, POSITIONS, HEADS, WIDTH = 8, 1024, 16, 128
BF16 = "bfloat16"
CACHES = {"positions": (BATCH, POSITIONS, HEADS, WIDTH), "heads": (BATCH, HEADS, POSITIONS, WIDTH)}


def attention(first: str, query: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    cache = "bkhd" if first == "positions" else "bhkd"
    scores = jnp.einsum(f"bqhd,{cache}->bhqk", query, keys).astype(jnp.float32)
    weights = jax.nn.softmax(scores, axis=-1).astype(jnp.bfloat16)
    return jnp.einsum(f"bhqk,{cache}->bqhd", weights, values)


def lowered(first: str) -> list[Kernel]:
    query, cache = spec(BATCH, 1, HEADS, WIDTH, dtype=BF16), spec(*CACHES[first], dtype=BF16)
    return kernels(lower_function(lambda q, k, v: attention(first, q, k, v), query, cache, cache))


def test_a_cache_by_heads_has_its_softmax_in_one_kernel() -> None:
    assert [kernel.kind for kernel in lowered("heads")] == [KernelKind.REDUCTION] * 3


def test_a_softmax_of_scores_that_lie_by_position_goes_along_columns() -> None:
    """`input_reduce`, `loop_exponential`, `input_reduce` and `loop_convert` fusions between two sums (JAX 0.11.2)."""
    made = lowered("positions")
    reduction, loop = KernelKind.REDUCTION, KernelKind.LOOP_FUSION
    assert [kernel.kind for kernel in made] == [reduction, reduction, loop, reduction, loop, reduction]
    for kernel in (made[1], made[3]):
        assert kernel.geometry == Reduction(shape=(BATCH, POSITIONS, HEADS, 1), dims=(1,))


@pytest.mark.parametrize("turned", [True, False])
def test_what_lies_otherwise_than_it_is_written_is_left_alone(turned: bool) -> None:
    """A cache by heads under the names of one by positions; scores that somebody else wants in order."""

    def attended(query: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        named = keys.transpose(0, 2, 1, 3) if turned else keys
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, named).astype(jnp.float32)
        return jax.nn.softmax(scores, axis=-1), scores if not turned else query

    cache = spec(*CACHES["heads" if turned else "positions"], dtype=BF16)
    made = kernels(lower_function(attended, spec(BATCH, 1, HEADS, WIDTH, dtype=BF16), cache))
    shapes = [kernel.geometry for kernel in made if kernel.kind is KernelKind.REDUCTION]
    assert all(isinstance(shape, Reduction) and shape.reduces_minor for shape in shapes)
