"""Loops carry what somebody reads."""

from __future__ import annotations

from unittest.mock import patch

import jax
import jax.numpy as jnp

from meshcast.lower.control_flow.dead_state import without_dead_state
from meshcast.lower.graph.dead_code import has_effect
from meshcast.lower.graph.free_values import FreeValues
from meshcast.workload import Block, Cost, Op, OpKind, Tensor
from tests.lower.programs import loops, lower_function, spec

ROW = Tensor(dtype="f32", shape=(8,))


def op(result: int, *operands: int) -> Op:
    cost = Cost(kind=OpKind.ELEMENTWISE, dtype="f32")
    return Op(name="stablehlo.add", operands=operands, results=(result,), cost=cost)


def carrying(*ops: Op, outputs: tuple[int, ...], results: tuple[int, ...]) -> Block:
    """A loop over values 0, 1 and 2 (inside 3, 4 and 5; behind 20, 21 and 22) in a block that returns `results`."""
    body = Block(inputs=(3, 4, 5), outputs=outputs, ops=ops)
    cost = Cost(kind=OpKind.LOOP)
    loop = Op(name="while#1", operands=(0, 1, 2), results=(20, 21, 22), blocks=(body,), trip_count=5, cost=cost)
    return Block(inputs=(0, 1, 2), outputs=results, ops=(loop,))


def left(block: Block) -> Op:
    return without_dead_state(block, FreeValues(), frozenset(), [ROW] * 30).ops[0]


def test_what_leads_to_nothing_that_is_read_goes() -> None:
    """4 and 5 only feed each other."""
    loop = left(carrying(op(6, 3), op(7, 4, 5), op(8, 4), outputs=(6, 7, 8), results=(20,)))
    assert (loop.operands, loop.results) == ((0,), (20,))
    (body,) = loop.blocks
    assert (body.inputs, body.outputs, [each.results for each in body.ops]) == ((3,), (6,), [(6,)])


def test_what_a_needed_value_is_computed_of_stays() -> None:
    """20 is computed from 4, and that from 5."""
    block = carrying(op(6, 3, 4), op(7, 5), op(8, 5), outputs=(6, 7, 8), results=(20,))
    assert left(block) is block.ops[0]


def test_a_chain_is_walked_back_once() -> None:
    """Each of 300 carried values becomes the one before; what nested blocks read is asked for once an op."""
    count = 300
    inputs, made = tuple(range(count)), tuple(range(count, 2 * count))
    ops = tuple(op(new, max(old - 1, 0)) for old, new in zip(inputs, made, strict=True))
    results = tuple(range(2 * count, 3 * count))
    loop = Op(
        name="while#1",
        operands=inputs,
        results=results,
        blocks=(Block(inputs=inputs, outputs=made, ops=ops),),
        trip_count=5,
        cost=Cost(kind=OpKind.LOOP),
    )
    last = Block(inputs=inputs, outputs=(results[-1],), ops=(loop,))
    with patch("meshcast.lower.control_flow.dead_state.has_effect", wraps=has_effect) as asked:
        assert without_dead_state(last, FreeValues(), frozenset(), [ROW] * 3 * count) is last
    assert asked.call_count <= 3 * count
    first = Block(inputs=inputs, outputs=(results[0],), ops=(loop,))
    assert without_dead_state(first, FreeValues(), frozenset(), [ROW] * 3 * count).ops[0].results == (results[0],)


def test_numbers_of_a_loop_that_counts_stay() -> None:
    """Its condition reads one of them."""
    block = carrying(op(6, 3), op(7, 4), op(8, 5), outputs=(6, 7, 8), results=(20,))
    tensors = [ROW] * 4 + [Tensor(dtype="i32", shape=())] + [ROW] * 25
    loop = without_dead_state(block, FreeValues(), frozenset(), tensors).ops[0]
    assert loop.results == (20, 21)


def test_a_loop_that_ends_on_a_value_that_it_carries_is_left_alone() -> None:
    block = carrying(op(6, 3), op(7, 4), op(8, 5), outputs=(6, 7, 8), results=(20,))
    assert without_dead_state(block, FreeValues(), frozenset({"while#1"}), [ROW] * 30) is block


def test_stacked_results_that_nobody_asks_for_are_not_written() -> None:
    def run(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda s, _: (jnp.sin(s), jnp.cos(s)), x, None, length=7)[0]

    lowered = lower_function(run, spec(1024))
    (loop,) = loops(lowered)
    assert not any("stablehlo.cosine" in kernel.ops for kernel in loop.body.steps)  # type: ignore[union-attr]
    assert max(lowered.tensors[value].bytes for value in loop.reads) == 4096


def test_a_condition_keeps_what_it_reads() -> None:
    """The residual is read by the condition alone; the number of turns by nobody."""

    def run(x: jax.Array) -> jax.Array:
        state = x, jnp.ones(512), jnp.zeros((), "int32")
        return jax.lax.while_loop(
            lambda s: jnp.max(s[1]) > 1e-3, lambda s: (jnp.sin(s[0]), s[1] * s[0], s[2] + 1), state
        )[0]

    (loop,) = loops(lower_function(run, spec(512)))
    assert len(loop.body.inputs) == 3  # state, residual and the answer
