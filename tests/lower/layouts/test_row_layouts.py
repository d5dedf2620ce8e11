"""Values without an order of their own lie so that a reduction of them goes along rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, KernelKind
from meshcast.lower.fusion.coalescing import is_tiled, loaded_for_one
from meshcast.lower.layouts import row_layouts
from meshcast.lower.value_types import LAID_OUT_ANEW
from meshcast.workload import Cost, Op, OpKind, Tensor
from meshcast.workload.graph import Reduction
from tests.lower.programs import kernels, lower_function, spec

I32 = "int32"


def reductions(made: list[Kernel]) -> list[Reduction]:
    return [kernel.geometry for kernel in made if isinstance(kernel.geometry, Reduction)]


def test_a_weighted_bag_is_gathered_in_the_order_of_its_sum() -> None:
    """XLA compiles it to a transposing gather and a sum of rows: (512, 128, 64) is written, 16 MiB."""

    def bag(table: jax.Array, rows: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.sum(table[rows] * weights[..., None], axis=1)

    made = kernels(lower_function(bag, spec(50000, 128), spec(512, 64, dtype=I32), spec(512, 64)))
    assert reductions(made) == [Reduction(shape=(512, 128, 64), dims=(2,))]
    assert [kernel.written_bytes for kernel in made] == [4 * 512 * 128 * 64, 4 * 512 * 128]


def test_a_plain_bag_is_summed_as_it_is_gathered() -> None:
    made = kernels(
        lower_function(lambda t, i: jnp.sum(t[i], axis=1), spec(50000, 128), spec(512, 64, dtype=I32))
    )  # fmt: skip
    assert reductions(made) == [Reduction(shape=(512, 64, 128), dims=(1,))]
    assert len(made) == 1


def test_an_argument_keeps_its_order() -> None:
    made = kernels(lower_function(lambda x: jnp.sum(jnp.exp(x), axis=1), spec(512, 64, 128)))
    assert reductions(made) == [Reduction(shape=(512, 64, 128), dims=(1,))]


def test_where_all_that_is_summed_has_an_order_nothing_else_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in most programs: what is summed is made of an argument, a product or something of another shape."""
    asked: list[object] = []

    def regions(*given: object) -> dict[int, object]:
        asked.extend(given)
        return {}

    monkeypatch.setattr(row_layouts, "_regions", regions)

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        made = jnp.tanh(jnp.einsum("abc,cd->abd", x, w)) * 2.0
        return jnp.sum(jnp.exp(x) + 1.0, axis=1) + jnp.sum(made * made, axis=1)

    made = kernels(lower_function(step, spec(512, 64, 128), spec(128, 128)))
    assert Reduction(shape=(512, 64, 128), dims=(1,)) in reductions(made)
    assert not asked


def test_a_sum_that_leaves_one_dimension_wishes_nothing() -> None:
    made = kernels(lower_function(lambda x, y: jnp.sum(x[:, None] * y[None, :], axis=0), spec(4096), spec(512)))
    assert all(not geometry.reduces_minor for geometry in reductions(made))


def test_forces_between_all_bodies_read_their_positions_in_both_orders() -> None:
    """Broadcast along rows, positions are wanted as (3, bodies): a small transpose, as XLA has it."""

    def forces(x: jax.Array, m: jax.Array) -> jax.Array:
        d = x[None] - x[:, None]
        near = jnp.sum(d * d, axis=-1) + 1e-3
        return x + jnp.sum(d * (m / near**1.5)[..., None], axis=1)

    made = kernels(lower_function(forces, spec(16384, 3), spec(16384)))
    turned = [kernel for kernel in made if LAID_OUT_ANEW in kernel.ops]
    assert [(kernel.kind, kernel.written_bytes) for kernel in turned] == [(KernelKind.TRANSPOSE, 4 * 16384 * 3)]
    assert Reduction(shape=(16384, 3, 16384), dims=(2,)) in reductions(made)


def transposed(shape: tuple[int, ...], order: tuple[int, ...], dtype: str = "f32") -> tuple[Op, list[Tensor]]:
    tensors = [Tensor(shape, dtype), Tensor(tuple(shape[dim] for dim in order), dtype)]
    return Op(
        name=LAID_OUT_ANEW, cost=Cost(kind=OpKind.TRANSPOSE, orders=(order,)), operands=(0,), results=(1,)
    ), tensors


def test_a_loop_loads_a_line_for_every_element_that_lies_apart() -> None:
    assert loaded_for_one(*transposed((64, 32), (1, 0))) == 16  # 64 bytes for 4
    assert loaded_for_one(*transposed((64, 32), (1, 0), "bf16")) == 32
    assert loaded_for_one(*transposed((64, 32, 128), (1, 0, 2))) == 1  # the innermost stays


def test_a_kernel_turns_tiles_where_both_dimensions_are_long() -> None:
    assert is_tiled(*transposed((8, 64, 32), (0, 2, 1)))
    assert not is_tiled(*transposed((32768, 64, 3), (0, 2, 1)))
    assert is_tiled(*transposed((2, 8, 4096), (0, 2, 1)))  # 8 by 4,096: 32,768 together
    assert not is_tiled(*transposed((2, 8, 64), (0, 2, 1)))


def test_long_chains_of_sums_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many take twice as long: what lies behind a sum was searched to its end for each."""
    asked = 0

    def sizes(tensor: Tensor) -> tuple[int, ...]:
        nonlocal asked
        asked += 1
        return tuple(size for size in tensor.shape if size > 1)

    def chain(count: int) -> int:
        def summed(end: jax.Array) -> jax.Array:
            counter = jax.lax.broadcasted_iota(jnp.float32, (64, 64, 64), 0)
            found = jax.lax.broadcasted_iota(jnp.float32, (64, 64), 0)
            for _ in range(count):
                found += jnp.sum(found[None] * counter, axis=0)
            return found + end

        nonlocal asked
        asked = 0
        lower_function(summed, spec(64, 64))
        return asked

    monkeypatch.setattr("meshcast.lower.layouts.row_layouts._sizes", sizes)
    few, many = chain(20), chain(40)
    assert 0 < few < many < 2.5 * few
