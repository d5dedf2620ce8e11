"""Zeros that a scatter adds to are not kept for arithmetic that reads zeros as well."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import KernelKind
from meshcast.lower.graph.own_fills import with_own_fills
from meshcast.lower.value_types import ValueTypes
from meshcast.simulate import peak_memory
from meshcast.workload import Cost, Op, OpKind, Tensor
from tests.lower.programs import kernels, lower_function, spec

TABLE = Tensor(dtype="f32", shape=(1000, 8))
FILL = Op(name="stablehlo.broadcast_in_dim", operands=(0,), results=(1,), cost=Cost(kind=OpKind.BROADCAST))
ZERO = Op(name="stablehlo.constant", operands=(), results=(0,), cost=Cost(kind=OpKind.GENERATE))
SCATTER = Op(name="stablehlo.scatter", operands=(1, 5, 6), results=(2,), cost=Cost(kind=OpKind.SCATTER))


def arithmetic(result: int, *operands: int) -> Op:
    return Op(name="stablehlo.add", operands=operands, results=(result,), cost=Cost(kind=OpKind.ELEMENTWISE))


def test_arithmetic_has_zeros_of_its_own() -> None:
    values = ValueTypes([TABLE] * 8)
    found = with_own_fills([ZERO, FILL, SCATTER, arithmetic(3, 7, 1)], values, {})
    zero, fill, again, scatter, added = found
    assert (zero, fill, scatter) == (ZERO, FILL, SCATTER)
    assert (again.operands, again.results, added.operands) == ((0,), (8,), (7, 8))
    assert values.tensors[8] == TABLE


def test_what_nobody_else_reads_or_is_no_constant_stays() -> None:
    values = ValueTypes([TABLE] * 8)
    for ops in ([ZERO, FILL, SCATTER], [arithmetic(1, 7, 7), SCATTER, arithmetic(3, 7, 1)]):
        assert with_own_fills(ops, values, {}) is ops


def test_an_optimizers_zero_keeps_no_table() -> None:
    """Gradients of rows, and `sqrt(v + 0)` over the whole table: beside arguments and results there is one table of zeros."""

    def step(table: jax.Array, rows: jax.Array, grads: jax.Array) -> jax.Array:
        gradient = jnp.zeros_like(table).at[rows].add(grads)
        return gradient / jnp.sqrt(gradient * gradient + jnp.zeros_like(table) + 1e-8) + table

    lowered = lower_function(step, spec(100_000, 64), spec(512, dtype="int32"), spec(512, 64))
    made = kernels(lowered)
    assert [kernel.kind for kernel in made].count(KernelKind.SCATTER) == 1
    table = 100_000 * 64 * 4
    assert [kernel.written_bytes for kernel in made if not kernel.reads] == [table]
    memory = peak_memory(lowered)
    assert memory.temporaries + memory.outputs <= 2 * table + 2**20
