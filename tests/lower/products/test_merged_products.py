"""Products that share an operand: which are merged, and what the merged one reads and writes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Gemm
from tests.lower.programs import kernels, lower_function, spec

BF16 = "bfloat16"


def products(function: object, *args: object) -> list[Gemm]:
    found = [k.geometry for k in _kernels(function, *args) if k.kind is KernelKind.GEMM]
    return [geometry for geometry in found if isinstance(geometry, Gemm)]


def _kernels(function: object, *args: object) -> list[Kernel]:
    return kernels(lower_function(function, *args))  # type: ignore[arg-type]


def test_three_projections_of_one_input_become_one_product() -> None:
    """2048 x 512 inputs (2 MiB) against 512 x 256 weights: 256 columns each, 768 together."""
    x, w = spec(2048, 512, dtype=BF16), spec(512, 256, dtype=BF16)

    def project(x: object, q: object, k: object, v: object) -> object:
        return jnp.tanh(x @ q), jnp.sin(x @ k), jnp.cos(x @ v)  # type: ignore[operator]

    made = _kernels(project, x, w, w, w)
    product = next(k for k in made if k.kind is KernelKind.GEMM)
    assert isinstance(product.geometry, Gemm)
    assert (product.geometry.m, product.geometry.n, product.geometry.k) == (2048, 768, 512)
    assert product.matrix_flops == 2 * 2048 * 768 * 512
    assert product.read_bytes == 2 * (2048 * 512 + 512 * 768)
    assert product.written_bytes == 2 * 2048 * 768
    join = made[0]
    assert join.ops == ("stablehlo.concatenate",)
    assert join.written_bytes == 2 * 512 * 768
    readers = [k for k in made if product.writes[0] in k.reads]
    assert sum(k.read_bytes for k in readers) == product.written_bytes  # each takes its slice


def test_weights_that_two_layers_share_are_joined_once() -> None:
    """As in ALBERT, whose layers all have the same weights; a transposed use of them is another array."""
    x, w = spec(2048, 512, dtype=BF16), spec(512, 512, dtype=BF16)

    def layer(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.tanh(x @ a) * jnp.sin(x @ b)

    def joins(function: object) -> int:
        return [k.ops for k in _kernels(function, x, w, w)].count(("stablehlo.concatenate",))

    assert joins(lambda x, a, b: layer(layer(x, a, b), a, b)) == 1
    assert joins(lambda x, a, b: layer(layer(x, a, b), b, a)) == 2


def test_large_products_are_left_alone() -> None:
    """Both above 64 MiB (96 here): nothing is gained by copying their weights together."""
    x, w = spec(4096, 4096, dtype=BF16), spec(4096, 4096, dtype=BF16)
    assert [g.n for g in products(lambda x, a, b: (x @ a, x @ b), x, w, w)] == [4096, 4096]


def test_products_of_a_few_rows_read_their_weights_where_they_lie() -> None:
    """24 rows: one tile reads every weight once, so nothing is copied together; 32 MiB of weights each are merged still."""
    x, w = spec(24, 2048, dtype=BF16), spec(2048, 8192, dtype=BF16)
    made = _kernels(lambda x, a, b: (jnp.sin(x @ a), jnp.cos(x @ b)), x, w, w)
    assert not [k for k in made if "stablehlo.concatenate" in k.ops]
    (product,) = [k for k in made if k.kind is KernelKind.GEMM]
    assert isinstance(product.geometry, Gemm)
    assert product.geometry.n == 16384
    assert product.read_bytes == 2 * (24 * 2048 + 2048 * 16384)


def test_one_small_product_joins_a_large_one() -> None:
    x, large, small = spec(2048, 2048, dtype=BF16), spec(2048, 4096, dtype=BF16), spec(2048, 512, dtype=BF16)
    assert [g.n for g in products(lambda x, a, b: (x @ a, x @ b), x, large, small)] == [4608]


def test_a_product_of_the_other_is_not_merged_with_it() -> None:
    x, w = spec(256, 256, dtype=BF16), spec(256, 256, dtype=BF16)
    assert len(products(lambda x, w: (x @ w) @ w, x, w)) == 2


def test_shared_right_hand_sides_stack_their_rows() -> None:
    x, w = spec(128, 256, dtype=BF16), spec(256, 512, dtype=BF16)
    assert [(g.m, g.n) for g in products(lambda a, b, w: (a @ w, b @ w), x, x, w)] == [(256, 512)]


def test_groups_that_need_each_other_are_not_both_merged() -> None:
    """`a1, a2` share x and `b1, b2` share w; b1 reads a1 and a2 reads b2: one of the pairs must stay apart."""
    x = spec(128, 128)

    def crossed(x: jax.Array, w: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        a1 = x @ p
        b1 = a1 @ w
        b2 = jnp.sin(p) @ w
        a2 = x @ jnp.cos(b2)
        return b1, a2, b2

    lowered = lower_function(crossed, x, x, x)
    known = set(lowered.schedule.inputs)
    made = {value for kernel in kernels(lowered) for value in kernel.writes}
    for kernel in kernels(lowered):
        assert all(value in known or value not in made for value in kernel.reads)
        known.update(kernel.writes)
    assert len([k for k in kernels(lowered) if k.kind is KernelKind.GEMM]) == 3
