"""Sums of what is repeated are products with the number of repetitions, and no kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.lower import KernelKind
from meshcast.lower.graph.spread_sums import without_sums_of_spread
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Cost, Op, OpKind, Reduction, Tensor
from tests.lower.programs import kernels, lower_function, spec


def types(*shapes: tuple[int, ...]) -> ValueTypes:
    return ValueTypes([Tensor(dtype="f32", shape=shape) for shape in shapes])


def broadcast(result: int, operand: int, *dims: int) -> Op:
    cost = Cost(kind=OpKind.BROADCAST, dtype="f32", orders=(dims,) if len(dims) > 1 else ())
    return Op(name="stablehlo.broadcast_in_dim", operands=(operand,), results=(result,), cost=cost)


def reduction(result: int, operand: int, shape: tuple[int, ...], *dims: int) -> Op:
    cost = Cost(kind=OpKind.REDUCE, dtype="f32", geometry=Reduction(shape=shape, dims=dims))
    return Op(name="stablehlo.reduce", operands=(operand,), results=(result,), cost=cost)


def test_a_sum_over_a_repeated_dimension_reads_one_element_of_it() -> None:
    values = types((4,), (4, 100), (4,))
    spread, cut = without_sums_of_spread([broadcast(1, 0), reduction(2, 1, (4, 100), 1)], values)
    assert (spread.results, cut.cost.kind, cut.operands, cut.results) == ((1,), OpKind.SLICE, (1,), (2,))
    assert (cut.cost.operand_bytes, cut.cost.written_bytes) == ((16,), 16)


def test_arithmetic_keeps_what_all_of_its_operands_repeat() -> None:
    values = types((), (4, 100), (4, 1), (4, 100), (4, 100), (4,), (100,))
    added = Op(name="stablehlo.add", operands=(1, 3), results=(4,), cost=Cost(kind=OpKind.ELEMENTWISE, dtype="f32"))
    before = [broadcast(1, 0), broadcast(3, 2, 0, 1), added]
    assert without_sums_of_spread([*before, reduction(5, 4, (4, 100), 1)], values)[-1].cost.kind is OpKind.SLICE
    kept = [*before, reduction(6, 4, (4, 100), 0)]
    assert without_sums_of_spread(kept, values) is kept


def test_one_of_two_equal_dimensions_is_not_guessed() -> None:
    values = types((4,), (4, 4), (4,))
    kept = [broadcast(1, 0), reduction(2, 1, (4, 4), 1)]
    assert without_sums_of_spread(kept, values) is kept


@pytest.mark.parametrize(
    ("function", "reductions"),
    [
        (lambda x, y: jnp.sum(jnp.log(jnp.broadcast_to(x, (64, 512))) * 2) + y, 0),
        (lambda x, y: jnp.max(jnp.full((64, 512), 3.0) * 1.5) + y + x, 0),
        (lambda x, y: jnp.sum(jnp.broadcast_to(y[:, None], (7, 512)), 1) + x, 0),
        (lambda x, y: jnp.sum(jnp.broadcast_to(y[:, None], (7, 512))) + x, 1),
    ],
)
def test_as_xla_has_it(function: object, reductions: int) -> None:
    """Compiled by XLA of JAX 0.11.2 for an H200: one loop each, but for the last, which sums the vector as well."""
    made = kernels(lower_function(function, spec(), spec(7)))  # type: ignore[arg-type]
    assert sum(kernel.kind is KernelKind.REDUCTION for kernel in made) == reductions


def test_values_that_differ_are_summed() -> None:
    made = kernels(lower_function(lambda x: jnp.sum(jax.lax.iota("float32", 512) * x, 1), spec(64, 512)))
    assert [kernel.kind for kernel in made] == [KernelKind.REDUCTION]


def test_an_array_of_constants_is_summed() -> None:
    """Data that a function closes over: which values it has no workload keeps."""
    data = np.linspace(0.0, 1.0, 512, dtype=np.float32)
    made = kernels(lower_function(lambda mean: jnp.sum((data - mean) ** 2), spec()))
    assert [kernel.kind for kernel in made] == [KernelKind.REDUCTION]
