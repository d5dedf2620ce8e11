"""Counters of large draws have their strides computed first, as XLA of JAX 0.11.2 compiles them."""

from __future__ import annotations

import jax
import pytest

from tests.lower.programs import kernels, lower_function, spec

KEY = spec(2, dtype="uint32")


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((512, 1024), []),
        ((640, 1024), [640]),
        ((512, 2, 1024), [512, 2]),
        ((2, 1048576), [2]),
        ((2097152,), []),  # its stride is 1
        ((1048576, 2), []),  # as dear to write as to compute
    ],
)
def test_a_row_of_strides_for_every_dimension_but_the_last(shape: tuple[int, ...], rows: list[int]) -> None:
    made = kernels(lower_function(lambda key: jax.random.bits(key, shape), KEY))
    written = [kernel.written_bytes for kernel in made]
    assert sorted(written[:-1]) == sorted(8 * size for size in rows)
    assert written[-1] == 4 * spec(*shape).size


def test_draws_of_one_shape_share_their_strides() -> None:
    def draws(key: jax.Array) -> list[jax.Array]:
        return [jax.random.normal(each, (1024, 1024)) for each in jax.random.split(key, 4)]

    made = kernels(lower_function(draws, KEY))
    assert [kernel.written_bytes for kernel in made].count(8 * 1024) == 1
