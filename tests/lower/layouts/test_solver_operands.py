"""Matrices that dense solvers read lie by columns, in memory that these may write over."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import KernelKind
from meshcast.lower.layouts.solver_operands import with_turned_solver_operands
from meshcast.lower.value_types import LAID_OUT_ANEW, ValueTypes
from meshcast.simulate import peak_memory
from meshcast.workload import Cost, Factorisation, Op, OpKind, Routine, Tensor
from tests.lower.programs import kernels, lower_function, spec

MATRIX, VECTOR = Tensor(dtype="f32", shape=(8, 64, 32)), Tensor(dtype="f32", shape=(8, 64, 1))


def solver(routine: Routine, *operands: int) -> Op:
    shape = Factorisation(routine=routine, batch=8, rows=64, columns=32, right=0)
    cost = Cost(kind=OpKind.LINALG, dtype="f32", geometry=shape)
    return Op(name="custom_call:solver", operands=operands, results=(5,), cost=cost)


def turned(
    op: Op, inputs: set[int], buffer: dict[int, int] | None = None, kept: tuple[int, ...] = ()
) -> list[tuple[str, tuple[int, ...]]]:
    values = ValueTypes([MATRIX, MATRIX, VECTOR, VECTOR, MATRIX, MATRIX])
    made = with_turned_solver_operands([op], inputs, set(kept), values, buffer or {})
    return [(each.name, each.operands) for each in made]


def test_an_argument_is_turned_first() -> None:
    assert turned(solver("qr", 0), {0}) == [(LAID_OUT_ANEW, (0,)), ("custom_call:solver", (6,))]


def test_what_is_made_on_the_way_is_made_by_columns() -> None:
    assert turned(solver("qr", 0), {1}) == [("custom_call:solver", (0,))]


def test_a_view_of_an_argument_is_turned_like_it() -> None:
    assert turned(solver("lu", 1), {0}, {1: 0}) == [(LAID_OUT_ANEW, (1,)), ("custom_call:solver", (6,))]


def test_a_vector_is_copied_where_the_routine_works_in_it() -> None:
    assert turned(solver("q", 4, 3, 2), {2, 3}) == [("copy", (2,)), ("custom_call:solver", (4, 3, 6))]
    assert turned(solver("triangular", 4, 2), {2}) == [("custom_call:solver", (4, 2))]


def test_a_result_that_is_returned_is_turned_back() -> None:
    """The solver writes 6, of which 5 is the transpose."""
    assert turned(solver("qr", 0), {1}, kept=(5,)) == [("custom_call:solver", (0,)), (LAID_OUT_ANEW, (6,))]


def test_an_lu_solve_is_xlas() -> None:
    """Compiled by XLA of JAX 0.11.2 for an H200: eight launches, of which four are solvers', and 2.0 MiB beside the arguments."""

    def solve(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.vmap(jnp.linalg.solve)(a, b)

    lowered = lower_function(solve, spec(64, 64, 64), spec(64, 64))
    kinds = [kernel.kind for kernel in kernels(lowered)]
    assert kinds.count(KernelKind.SOLVER) == 3
    assert kinds.count(KernelKind.TRANSPOSE) == 1
    (permutation,) = [k for k in kernels(lowered) if any(name.endswith("lu_pivots_to_permutation") for name in k.ops)]
    assert len(permutation.ops) == 1
    assert peak_memory(lowered).temporaries < 2.2 * 2**20


def test_a_batch_that_is_turned_twice_is_itself() -> None:
    def twice(a: jax.Array) -> jax.Array:
        return jnp.sin(jnp.swapaxes(jnp.swapaxes(jnp.cos(a), 1, 2), 1, 2))

    (kernel,) = kernels(lower_function(twice, spec(8, 64, 32)))
    assert not any("transpose" in name for name in kernel.ops)
