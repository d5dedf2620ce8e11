"""What split products launch besides themselves, on programs whose kernels can be counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.hardware import load_device
from meshcast.lower import split_parts, summing_launches
from meshcast.workload.graph import Gemm
from tests.lower.programs import kernels, lower_function, spec

H200 = load_device("h200")


def launches(function: object, *args: object, parts: int) -> int:
    """The launches besides the kernels, all products of a program being split into so many parts."""
    lowered = lower_function(function, *args)  # type: ignore[arg-type]
    shapes = [kernel.geometry for kernel in kernels(lowered)]
    assert {split_parts(s, H200.cores, H200.architecture) for s in shapes if isinstance(s, Gemm)} == {parts}
    return summing_launches(lowered, H200.cores, H200.architecture)


def turned(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sort(x @ y, axis=1)


def test_a_few_parts_are_added_up_in_what_reads_the_product() -> None:
    """256 x 256 x 256 is four parts: a tanh and a sum over rows each load these; a sort cannot, nor can the program's caller."""
    square = spec(256, 256), spec(256, 256)
    assert launches(lambda x, y: jnp.sum(jnp.exp(x @ y), 0), *square, parts=4) == 0
    assert launches(turned, *square, parts=4) == 1
    assert launches(lambda x, y: x @ y, *square, parts=4) == 1


def test_an_epilogue_is_computed_behind_the_sum() -> None:
    def descent(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return w - 0.1 * (x.T @ y)

    few, many = (256, 256, 256), (64, 64, 65536)
    for (m, n, k), parts, expected in ((few, 4, 1), (many, 128, 2)):
        args = spec(m, n), spec(k, m), spec(k, n)
        assert launches(descent, *args, parts=parts) == expected


@pytest.mark.parametrize("rows", [50_000, 50_176])
def test_the_sum_of_many_parts_is_a_kernel_of_its_own(rows: int) -> None:
    """128 parts of 50,000 rows are 392 each, 176 more than there are: kernels pad them, which are counted as such."""
    assert launches(lambda x, y: x @ y, spec(64, rows), spec(rows, 100), parts=128) == 1
