"""Arithmetic on constants is done before a run, and updates of all of an array are none."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower.graph.folded_constants import with_folded_constants, without_whole_updates
from meshcast.workload import Cost, Op, OpKind, Tensor
from tests.lower.programs import kernels, loops, lower_function, spec

ONE, ROW = Tensor(dtype="f32", shape=()), Tensor(dtype="f32", shape=(8,))


def constant(result: int, name: str = "constant") -> Op:
    return Op(name=f"stablehlo.{name}", operands=(), results=(result,), cost=Cost(kind=OpKind.GENERATE, dtype="f32"))


def op(kind: OpKind, result: int, *operands: int) -> Op:
    return Op(name="stablehlo.op", operands=operands, results=(result,), cost=Cost(kind=kind, dtype="f32"))


def test_what_is_computed_of_constants_is_one() -> None:
    ops = [constant(0), constant(1), op(OpKind.ELEMENTWISE, 2, 0, 1), op(OpKind.ELEMENTWISE, 4, 2, 3)]
    found = with_folded_constants(ops, [ONE] * 5, {})
    assert [(each.cost.kind, each.operands) for each in found[2:]] == [
        (OpKind.GENERATE, ()),
        (OpKind.ELEMENTWISE, (2, 3)),
    ]


def test_a_constant_is_known_by_its_views() -> None:
    found = with_folded_constants([constant(0), op(OpKind.ELEMENTWISE, 2, 1)], [ONE] * 3, {1: 0})
    assert found[1].cost.kind is OpKind.GENERATE


def test_fills_and_counters_are_made_on_the_way() -> None:
    tensors = [ONE, ROW, ROW, ROW, ROW]
    ops = [constant(0), op(OpKind.BROADCAST, 1, 0), op(OpKind.ELEMENTWISE, 2, 1), constant(3, "iota")]
    ops.append(op(OpKind.ELEMENTWISE, 4, 3))
    assert with_folded_constants(ops, tensors, {}) is ops


def test_an_element_of_a_fill_is_a_constant() -> None:
    ops = [constant(0), op(OpKind.BROADCAST, 1, 0), op(OpKind.ELEMENTWISE, 2, 1), op(OpKind.SLICE, 3, 2)]
    assert with_folded_constants(ops, [ONE, ROW, ROW, ONE], {})[-1].cost.kind is OpKind.GENERATE


def test_an_update_of_a_whole_array_is_what_is_written() -> None:
    buffer: dict[int, int] = {}
    ops = [op(OpKind.UPDATE, 3, 0, 1, 2), op(OpKind.ELEMENTWISE, 4, 3)]
    (left,) = without_whole_updates(ops, [ROW, ROW, ONE, ROW, ROW], buffer)
    assert (left.operands, buffer) == ((1,), {3: 1})


def test_an_update_of_a_part_stays() -> None:
    ops = [op(OpKind.UPDATE, 3, 0, 1, 2)]
    assert without_whole_updates(ops, [ROW, ONE, ONE, ROW], {}) is ops


def test_a_loop_that_begins_with_arithmetic_on_constants_begins_with_a_constant() -> None:
    def run(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        step = jnp.float32(2) * jnp.sqrt(jnp.float32(3))
        return jax.lax.fori_loop(0, 5, lambda _, s: (s[0] * s[1], s[1] + 1), (x, step))

    lowered = lower_function(run, spec(1024))
    assert len(loops(lowered)) == 1
    assert {name for kernel in kernels(lowered) for name in kernel.ops} <= {"copy"}


def test_a_result_outlives_a_whole_update() -> None:
    def run(x: jax.Array, at: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(jnp.zeros((1, 512)), jnp.sin(x), (at, 0))

    (kernel,) = kernels(lower_function(run, spec(1, 512), spec(dtype="int32")))
    assert (kernel.read_bytes, kernel.written_bytes) == (2048, 2048)
