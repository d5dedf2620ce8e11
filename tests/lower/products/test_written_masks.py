"""Masks that a product's epilogue reads: written where their broadcast repeats some dimensions of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel
from meshcast.lower.value_types import WRITTEN_MASK
from tests.lower.programs import all_loops, lower_function, spec

BATCH, LENGTH, HEADS, WIDTH = 4, 128, 6, 64
QUERIES = spec(BATCH, LENGTH, HEADS, WIDTH, dtype="bfloat16")


def attended(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1).astype(v.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def written(function: Callable[..., Any], *arguments: Any) -> list[int]:
    """Bytes of the masks that are written."""
    lowered = lower_function(function, *arguments)
    bodies = [lowered.schedule, *(loop.body for loop in all_loops(lowered.schedule))]
    found = [step for body in bodies for step in body.steps if isinstance(step, Kernel)]
    return [kernel.written_bytes for kernel in found if WRITTEN_MASK in kernel.ops]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((BATCH, 1, 1, LENGTH), 1),  # of each sequence, for all heads
        ((1, HEADS, LENGTH, LENGTH), 1),  # of each head, for all sequences
        ((1, 1, LENGTH, LENGTH), 0),  # for the whole batch: a broadcast under any name
        ((BATCH, HEADS, LENGTH, LENGTH), 0),  # no broadcast
    ],
)
def test_arguments_that_are_repeated_along_a_part_of_the_batch(shape: tuple[int, ...], expected: int) -> None:
    size = BATCH * HEADS * LENGTH * LENGTH
    assert written(attended, QUERIES, QUERIES, QUERIES, spec(*shape, dtype="bool")) == [size] * expected


def test_masks_that_are_computed_are_left_to_the_softmax_unless_a_loop_hands_them_in() -> None:
    lengths = spec(BATCH, dtype="int32")

    def mask(lengths: jax.Array) -> jax.Array:
        return (jnp.arange(LENGTH) < lengths[:, None])[:, None, None]

    def once(q: jax.Array, lengths: jax.Array) -> jax.Array:
        return attended(q, q, q, mask(lengths))

    def layers(q: jax.Array, lengths: jax.Array) -> jax.Array:
        padding = mask(lengths)
        return jax.lax.scan(lambda q, _: (attended(q, q, q, padding), None), q, None, length=3)[0]

    assert written(once, QUERIES, lengths) == []
    assert len(written(layers, QUERIES, lengths)) == 1


def test_scores_that_are_read_twice_have_no_epilogue() -> None:
    def function(q: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, q)
        return scores, jnp.where(mask, scores, 0)

    assert written(function, QUERIES, spec(BATCH, 1, 1, LENGTH, dtype="bool")) == []


def test_an_epilogue_ends_where_scores_are_widened() -> None:
    """The bias of each head is added before, the mask of each sequence is read behind it."""

    def function(q: jax.Array, bias: jax.Array, mask: jax.Array) -> jax.Array:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, q) + bias
        return jnp.where(mask, scores.astype(jnp.float32), -1e9).sum(-1)

    bias = spec(1, HEADS, LENGTH, LENGTH, dtype="bfloat16")
    found = written(function, QUERIES, bias, spec(BATCH, 1, 1, LENGTH, dtype="bool"))
    assert found == [2 * BATCH * HEADS * LENGTH * LENGTH]
