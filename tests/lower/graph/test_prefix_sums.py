"""Prefix sums as windows of windows' sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import scan_levels
from meshcast.lower.graph.prefix_sums import with_split_prefix_sums
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Cost, Op, OpKind, Reduction, Tensor, Window
from tests.lower.programs import kernels, lower_function, spec


@pytest.mark.parametrize(
    ("length", "levels"), [(1, 0), (16, 0), (17, 1), (256, 1), (257, 2), (4096, 2), (4097, 3), (65536, 3)]
)
def test_windows_of_sixteen_are_summed_until_one_is_left(length: int, levels: int) -> None:
    assert scan_levels(length) == levels


def scan(*shape: int, dim: int, flops: float = 1.0) -> tuple[Op, ValueTypes]:
    tensor = Tensor(dtype="f32", shape=shape)
    cost = Cost(
        kind=OpKind.SCAN,
        dtype="f32",
        vector_flops=flops * tensor.elements,
        operand_bytes=(tensor.bytes, 4),
        written_bytes=tensor.bytes,
        geometry=Reduction(shape=shape, dims=(dim,)),
    )
    op = Op(name="stablehlo.reduce_window", operands=(0, 1), results=(2,), cost=cost)
    return op, ValueTypes([tensor, Tensor(dtype="f32", shape=()), tensor])


def names(ops: list[Op]) -> list[str]:
    return [op.name.rpartition(".")[2] for op in ops]


def test_up_to_sixteen_are_one_window() -> None:
    op, values = scan(8, 12, dim=1)
    (window,) = with_split_prefix_sums([op], set(), values)
    assert window.cost.geometry == Window(shape=(8, 12), window=(1, 12), strides=(1, 1))
    assert (window.operands, window.results) == ((0,), (2,))


def test_thirty_two_are_two_windows_and_what_is_before_the_second() -> None:
    """[8, 32]: windows of [8, 2, 16], the last sums [8, 2], those before each, spread over [8, 2, 16], and added."""
    op, values = scan(8, 32, dim=1)
    made = with_split_prefix_sums([op], set(), values)
    assert names(made) == ["reduce_window", "slice", "reduce_window", "broadcast_in_dim", "add"]
    shapes = [values.tensors[each.results[0]].shape for each in made]
    assert shapes == [(8, 2, 16), (8, 2), (8, 2), (8, 2, 16), (8, 32)]
    assert made[3].cost.orders == ((0, 1),)
    assert made[-1].results == op.results


def test_lengths_that_sixteen_does_not_divide_are_padded_and_cut() -> None:
    op, values = scan(17, 8, dim=0)
    made = with_split_prefix_sums([op], set(), values)
    assert names(made) == ["pad", "reduce_window", "slice", "reduce_window", "broadcast_in_dim", "add", "slice"]
    assert values.tensors[made[0].results[0]].shape == (2, 16, 8)


def test_more_than_sixteen_windows_are_summed_likewise() -> None:
    op, values = scan(512, dim=0)
    made = with_split_prefix_sums([op], set(), values)
    inner = ["reduce_window", "slice", "reduce_window", "broadcast_in_dim", "add"]
    assert names(made) == ["reduce_window", "slice", *inner, "pad", "broadcast_in_dim", "add"]


def test_other_scans_stay() -> None:
    """A body of several operations, or whose last state is read, is no sum."""
    op, values = scan(8, 32, dim=1, flops=3.0)
    assert with_split_prefix_sums([op], set(), values) == [op]


@pytest.mark.parametrize(
    ("shape", "dim", "count", "written"),
    [
        ((4096, 12), 1, 1, 196_608),
        ((1024, 200), 1, 2, 872_448),
        ((8192, 8), 0, 3, 540_672),
        ((1024, 4096), 1, 4, 18_939_904),
    ],
)
def test_kernels_are_xlas(shape: tuple[int, int], dim: int, count: int, written: int) -> None:
    """Compiled by XLA of JAX 0.11.2 for an H200: as many loops, and they write as many bytes."""
    made = kernels(lower_function(lambda x: jnp.cumsum(x, dim) * 2, spec(*shape)))
    assert (len(made), sum(kernel.written_bytes for kernel in made)) == (count, written)


def test_a_reverse_sum_is_one_too() -> None:
    made = kernels(lower_function(lambda x: jax.lax.cumsum(x, 1, reverse=True) * x, spec(64, 1000)))
    assert len(made) == 2


def test_a_loop_goes_over_a_window_for_each_result() -> None:
    (kernel,) = kernels(lower_function(lambda x: jnp.cumsum(x, 1) * 2, spec(4096, 12)))
    assert "prefix" in kernel.flags
