"""Operands that a library cannot take as they lie are turned before it; transposes that only rename are none."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, LoweredProgram
from meshcast.lower.fusion.coalescing import is_tiled
from meshcast.lower.layouts.memory_order import as_written, lies_together, reshaped, transposed
from meshcast.lower.value_types import LAID_OUT_ANEW
from meshcast.workload import Cost, Gemm, Op, OpKind, Tensor
from tests.lower.programs import kernels, lower_function, spec


def turning(lowered: LoweredProgram) -> list[Kernel]:
    return [kernel for kernel in kernels(lowered) if "transpose" in kernel.flags]


def products(lowered: LoweredProgram) -> list[Gemm]:
    return [kernel.geometry for kernel in kernels(lowered) if isinstance(kernel.geometry, Gemm)]


def test_atoms_follow_transposes_and_reshapes() -> None:
    lying = as_written((4, 6, 10))
    moved = transposed(lying, (2, 0, 1))
    assert (moved.dims, moved.order) == (((2,), (0,), (1,)), (0, 1, 2))
    split = reshaped(moved, (5, 2, 24))  # 10 is 5 x 2, and 4 with 6 is one dimension
    assert split is not None
    assert split.sizes == (5, 2, 4, 6)
    assert split.dims == ((0,), (1,), (2, 3))
    assert split.order == (2, 3, 0, 1)
    assert reshaped(lying, (3, 80)) is None  # cuts through the 4


def test_atoms_of_a_product_may_lie_by_columns() -> None:
    lying = as_written((3, 1, 5, 7), columns=2)
    assert (lying.order, lying.swapped) == ((0, 1, 2), (1, 2, 0))


@pytest.mark.parametrize(
    ("order", "parts", "expected"),
    [
        ((0, 1, 2), ((), (0, 1), (2,)), True),
        ((0, 1, 2), ((), (0, 2), (1,)), False),  # rows apart
        ((0, 1, 2), ((), (1, 0), (2,)), False),  # rows in the other order
        ((0, 1, 2), ((1,), (0,), (2,)), True),  # the batch in the middle
        ((0, 1, 2), ((2,), (0,), (1,)), False),  # the batch innermost
        ((0, 1, 2, 3), ((0, 2), (1,), (3,)), False),  # the batch apart: heads behind tokens
        ((), ((), (), ()), True),
    ],
)
def test_a_library_takes_what_lies_together(
    order: tuple[int, ...], parts: tuple[tuple[int, ...], ...], expected: bool
) -> None:
    assert lies_together(order, parts) is expected


def chained(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """The second product sums over the first one's middle dimension: its rows do not lie together."""
    return jnp.einsum("ikl,kz->ilz", jnp.einsum("ij,jkl->ikl", a, b), c)


@pytest.mark.parametrize(("inner", "expected"), [(100, 1), (96, 0)])
def test_a_product_s_result_is_turned_for_the_next_one_that_has_no_tiles_for_it(inner: int, expected: int) -> None:
    """Of 96 = 3 x 32 elements Triton's product reads tiles where they lie; 100 are no multiple of a tile's edge."""
    lowered = lower_function(chained, spec(512, 256), spec(256, 128, inner), spec(128, 160))
    found = turning(lowered)
    size = 512 * 128 * inner * 4
    assert [(kernel.read_bytes, kernel.written_bytes) for kernel in found] == [(size, size)] * expected


def test_an_argument_is_turned_once_for_all_products() -> None:
    def both(a: jax.Array, b: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.einsum("abc,bd->acd", a, b), jnp.einsum("abc,bd->acd", a, jnp.sin(c))

    found = turning(lower_function(both, spec(64, 128, 50), spec(128, 80), spec(128, 80)))
    assert [kernel.written_bytes for kernel in found] == [64 * 128 * 50 * 4]


def attention(q: jax.Array, k: jax.Array, weights: jax.Array) -> jax.Array:
    heads = [(x @ weights).reshape(4, 128, 8, 32) for x in (q, k)]
    return jnp.einsum("bqhd,bkhd->bhqk", *heads)


def test_queries_and_keys_are_turned_so_that_heads_are_a_batch() -> None:
    """(batch, tokens, heads, width), as the projections write them, has batch and heads apart."""
    lowered = lower_function(attention, spec(4, 128, 256), spec(4, 128, 256), spec(256, 256))
    assert [kernel.written_bytes for kernel in turning(lowered)] == [4 * 128 * 256 * 4] * 2
    scores = products(lowered)[-1]
    assert (scores.batch, scores.lhs_contracting_minor, scores.rhs_contracting_minor) == (32, True, False)


def between(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """A product's result is transposed, scaled, and summed over what was innermost."""
    return jnp.einsum("ikl,kz->ilz", jnp.swapaxes(a @ b, 1, 2) * 2.5, c)


def test_a_transpose_between_products_that_take_either_order_moves_nothing() -> None:
    lowered = lower_function(between, spec(64, 385, 512), spec(512, 769), spec(769, 512))
    assert not turning(lowered)
    # Rows of 769 floats are summed over as they lie.
    assert products(lowered)[-1].lhs_contracting_minor


def test_a_transpose_that_somebody_else_reads_stays() -> None:
    def returned(a: jax.Array, b: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        turned = jnp.swapaxes(a @ b, 1, 2) * 2.5
        return jnp.einsum("ikl,kz->ilz", turned, c), turned

    assert turning(lower_function(returned, spec(64, 385, 512), spec(512, 769), spec(769, 512)))


def test_pairs_that_are_summed_over_are_put_in_order_first() -> None:
    """Both operands name them backwards, and both have them side by side: nothing moves (dot_dimension_sorter.cc)."""

    def backwards(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.dot_general(a, b, (((2, 1), (1, 0)), ((), ())))

    assert not turning(lower_function(backwards, spec(64, 16, 256), spec(16, 256, 1024)))


def mapped(weights: jax.Array, x: jax.Array) -> jax.Array:
    """A layer mapped over a batch: JAX multiplies (out, in) by (batch, in) and transposes the result."""
    return jax.vmap(lambda row: weights @ row)(x)


def test_a_product_that_only_a_transpose_of_rows_for_columns_reads_writes_it() -> None:
    lowered = lower_function(mapped, spec(384, 256), spec(1024, 256))
    assert not turning(lowered)
    (product,) = products(lowered)
    assert (product.m, product.n, product.k) == (1024, 384, 256)
    assert (product.lhs_contracting_minor, product.rhs_contracting_minor) == (True, True)


def test_a_product_that_others_read_as_well_is_transposed() -> None:
    def both(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = jax.lax.dot_general(weights, x, (((1,), (1,)), ((), ())))
        return product, product.T

    lowered = lower_function(both, spec(384, 256), spec(1024, 256))
    assert len(turning(lowered)) == 1


def test_grouped_softmax_is_turned_across_its_heads() -> None:
    """Scores lie as (keys, queries, group): the next product wants the group before the queries, and no tile has three rows."""

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        weights = jax.nn.softmax(jnp.einsum("bqhgd,bkhd->bhgqk", q, k).astype(jnp.float32), axis=-1)
        return jnp.einsum("bhgqk,bkhd->bqhgd", weights.astype(jnp.bfloat16), v)

    def heads(*shape: int) -> jax.ShapeDtypeStruct:
        return spec(*shape, dtype="bfloat16")

    given = heads(1, 512, 8, 3, 128), heads(1, 512, 8, 128), heads(1, 512, 8, 128)
    scores = 8 * 3 * 512 * 512
    (turned,) = [
        kernel for kernel in turning(lower_function(attention, *given))
        if kernel.written_bytes == 2 * scores
    ]  # fmt: skip
    # A sector of 32 bytes for every score that it reads, of two bytes each (as XLA compiles it: a loop, no tiles).
    assert turned.fetched_bytes >= 16 * 2 * scores


@pytest.mark.parametrize(
    ("dtype", "tiled"),
    [
        ("bfloat16", {2, 4, 5, 6, 8, 10, 12, 13, 14, 15, 16}),
        ("float32", {16}),
        ("int8", {2, 4, 8, 10, 12, 15, 16}),
    ],
)
def test_short_runs_of_narrow_elements_are_packed(dtype: str, tiled: set[int]) -> None:
    """As XLA 0.11.2 compiles (8, 512, 512, run) transposed by (0, 3, 2, 1)."""
    short = {"bfloat16": "bf16", "float32": "f32", "int8": "i8"}[dtype]
    for run in range(2, 17):
        tensors = [Tensor((8, 512, 512, run), short), Tensor((8, run, 512, 512), short)]
        cost = Cost(kind=OpKind.TRANSPOSE, dtype=short, orders=((0, 3, 2, 1),))
        op = Op(name=LAID_OUT_ANEW, cost=cost, operands=(0,), results=(1,))
        assert is_tiled(op, tensors) is (run in tiled), run


def test_arithmetic_of_two_products_is_done_in_one_order() -> None:
    """Both products write (heads, rows, columns), the first one is read under other names: the second is turned to lie so."""

    def both(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
        first = jnp.swapaxes(jnp.einsum("hid,hjgd->hijg", a, b), 1, 3)  # (h, g, j, i), which lies as (h, i, j, g)
        second = jnp.einsum("hgjd,hid->hgji", c, d)
        return jnp.einsum("hgji,hid->hgjd", jax.nn.softmax(first, axis=3) * second, d)

    given = spec(8, 128, 64), spec(8, 256, 3, 64), spec(8, 3, 256, 64), spec(8, 128, 64)
    turned = turning(lower_function(both, *given))
    assert [kernel.written_bytes for kernel in turned] == [4 * 8 * 3 * 256 * 128] * 2  # and what the last product reads
