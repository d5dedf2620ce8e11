"""Batches of products with vectors are reductions that read their matrix where it lies."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from meshcast.lower import KernelKind
from meshcast.workload.graph import Reduction
from tests.lower.programs import kernels, lower_function, spec

BF16 = "bfloat16"


@pytest.mark.parametrize(
    ("equation", "shape", "expected"),
    [
        ("bcn,bn->bc", (64, 512, 128), Reduction(shape=(64, 512, 128), dims=(2,))),  # along rows
        ("bnc,bn->bc", (64, 512, 128), Reduction(shape=(64, 512, 128), dims=(1,))),  # along columns
    ],
)
def test_a_batch_of_vector_products_is_one_reduction(
    equation: str, shape: tuple[int, ...], expected: Reduction
) -> None:
    length = shape[equation.split(",")[0].index("n")]
    matrix, vector = spec(*shape, dtype=BF16), spec(shape[0], length, dtype=BF16)
    (kernel,) = kernels(lower_function(lambda a, x: jnp.einsum(equation, a, x), matrix, vector))
    assert kernel.kind is KernelKind.REDUCTION
    assert kernel.geometry == expected
    size = shape[0] * shape[1] * shape[2]
    assert kernel.read_bytes == 2 * (size + shape[0] * length)
    assert kernel.vector_flops == 2 * size
    assert kernel.matrix_flops == 0


def test_what_leads_to_the_matrix_is_computed_on_the_way() -> None:
    """A slice of a stacked cache is not copied first, as it is for a product."""
    stack, vector = spec(4, 64, 512, 128, dtype=BF16), spec(64, 128, dtype=BF16)
    made = kernels(lower_function(lambda a, x: jnp.einsum("bcn,bn->bc", jnp.tanh(a[2]), x), stack, vector))
    assert [kernel.kind for kernel in made] == [KernelKind.REDUCTION]


@pytest.mark.parametrize("batched", [True, False])
def test_matrices_and_single_products_stay_products(batched: bool) -> None:
    """Without a batch XLA sums only small ones, which the estimator knows; with two columns there is reuse."""
    if batched:
        made = lower_function(lambda a, x: jnp.einsum("bcn,bnk->bck", a, x), spec(64, 512, 128), spec(64, 128, 2))
    else:
        made = lower_function(lambda a, x: a @ x, spec(4096, 4096), spec(4096))
    assert KernelKind.GEMM in [kernel.kind for kernel in kernels(made)]


def test_two_long_vectors_are_reduced_in_two_stages() -> None:
    """4M elements: read once, 16 MiB each, and no product of one row, one column and 4M steps."""
    made = kernels(lower_function(lambda x, y: x @ y, spec(1 << 22), spec(1 << 22)))
    assert {kernel.kind for kernel in made} == {KernelKind.REDUCTION}
    assert made[0].read_bytes == 2 * 4 * (1 << 22)


@pytest.mark.parametrize(
    ("k", "n", "kinds"),
    [
        (64, 64, [KernelKind.REDUCTION]),
        (256, 1024, [KernelKind.REDUCTION]),
        (1024, 1024, [KernelKind.LOOP_FUSION, KernelKind.REDUCTION]),
        (1024, 2048, [KernelKind.REDUCTION]),  # 32 blocks load the vector's elements as fast as products are written
        (4096, 2048, [KernelKind.LOOP_FUSION, KernelKind.REDUCTION]),
        (4096, 4096, [KernelKind.GEMM]),  # above 10 million multiply-adds
    ],
)
def test_products_are_written_before_few_blocks_sum_them(k: int, n: int, kinds: list[KernelKind]) -> None:
    """As XLA 0.11.2 compiles them (f32): a block that sums columns loads the vector's element anew for each of them."""
    made = kernels(lower_function(lambda x, a: x @ a, spec(k), spec(k, n)))
    assert [kernel.kind for kernel in made] == kinds


def test_a_sum_over_one_element_is_a_multiplication() -> None:
    (kernel,) = kernels(lower_function(lambda x, y: jnp.tanh(x @ y), spec(256, 1), spec(1, 128)))
    assert kernel.kind is KernelKind.LOOP_FUSION
    assert (kernel.vector_flops, kernel.matrix_flops) == (256 * 128, 0)
    assert kernel.read_bytes == 4 * (256 + 128)


def test_tiny_products_are_loops_that_nothing_joins() -> None:
    """(4 + 4) 8 = 64 elements of both operands, below 100; with 16 steps 128, which take their epilogue in."""
    for steps, count in ((8, 2), (16, 1)):
        a, b = spec(512, 4, steps), spec(512, steps, 4)
        made = kernels(lower_function(lambda x, y: jnp.einsum("bij,bjk->bik", x, y) * 2, a, b))
        assert len(made) == count


@pytest.mark.parametrize(("precision", "kind"), [("highest", KernelKind.REDUCTION), ("default", KernelKind.GEMM)])
def test_large_products_with_vectors_are_sums_where_triton_has_no_kernel(precision: str, kind: KernelKind) -> None:
    """As in `lineax`: XLA 0.11.2 reads the matrix by a reduction in every turn of conjugate gradients."""
    made = lower_function(lambda a, x: jnp.matmul(a, x, precision=precision), spec(4096, 4096), spec(4096))
    assert [kernel.kind for kernel in kernels(made)] == [kind]
