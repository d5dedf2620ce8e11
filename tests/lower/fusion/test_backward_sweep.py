"""What becomes one kernel and what it moves, on programs whose bytes can be counted by hand."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from meshcast.lower import Kernel, KernelKind, LoopStep, Schedule
from meshcast.lower.graph.dead_code import live_ops
from meshcast.lower.graph.free_values import FreeValues
from meshcast.workload.graph import OpKind
from tests.lower.programs import kernels, loops, lower_function, lower_text, spec

MiB = 2**20
X = spec(512, 512)  # 1 MiB


def test_an_elementwise_chain_is_one_kernel_that_moves_its_boundary() -> None:
    (kernel,) = kernels(lower_function(lambda x, y: jnp.tanh(x * 2 + y) - 1, X, X))
    assert kernel.kind is KernelKind.LOOP_FUSION
    assert (kernel.read_bytes, kernel.written_bytes) == (2 * MiB, MiB)
    assert kernel.transcendentals == 512 * 512
    assert kernel.vector_flops == 3 * 512 * 512


def test_an_operand_read_by_several_members_is_read_once() -> None:
    (kernel,) = kernels(lower_function(lambda x: x * x + jnp.abs(x), X))
    assert kernel.read_bytes == MiB


def test_without_fusion_every_op_is_a_kernel() -> None:
    assert len(kernels(lower_function(lambda x, y: (x * y + y) * x, X, X, backend="none"))) == 3


def test_a_reduction_takes_its_producers_in_and_is_the_root() -> None:
    (kernel,) = kernels(lower_function(lambda x: jnp.sum(x * x, axis=0), X))
    assert kernel.kind is KernelKind.REDUCTION
    assert (kernel.read_bytes, kernel.written_bytes) == (MiB, 512 * 4)


def test_softmax_over_a_short_row_is_one_pass() -> None:
    (kernel,) = kernels(lower_function(lambda x: jax.nn.softmax(x, axis=-1), X))
    assert kernel.kind is KernelKind.REDUCTION
    assert (kernel.read_bytes, kernel.written_bytes) == (MiB, MiB)


def test_softmax_over_a_long_row_reads_its_input_again() -> None:
    rows = kernels(lower_function(lambda x: jax.nn.softmax(x, axis=-1), spec(4, 2**17)))
    assert len(rows) > 1
    assert sum(kernel.read_bytes for kernel in rows) >= 3 * 4 * 2**17 * 4


def test_softmax_over_columns_is_not_a_row() -> None:
    assert len(kernels(lower_function(lambda x: jax.nn.softmax(x, axis=0), X))) > 1


def test_layer_norm_is_one_pass() -> None:
    def norm(x: jax.Array) -> jax.Array:
        mean = jnp.mean(x, -1, keepdims=True)
        return (x - mean) * lax.rsqrt(jnp.mean(jnp.square(x - mean), -1, keepdims=True) + 1e-5)

    (kernel,) = kernels(lower_function(norm, X))
    assert (kernel.read_bytes, kernel.written_bytes) == (MiB, MiB)


def test_a_cheap_conversion_is_repeated_in_every_reader() -> None:
    """Reading bf16 twice moves less than writing and reading f32: 1 MiB each for products that need f32 operands."""

    def step(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        wide = x.astype(jnp.float32)
        return jnp.sum(wide, axis=0), jnp.sum(wide * wide, axis=1)

    made = kernels(lower_function(step, spec(512, 512, dtype="bfloat16")))
    assert all(k.kind is KernelKind.REDUCTION for k in made)
    assert sum(k.written_bytes for k in made) == 2 * 512 * 4


def test_an_expensive_sum_is_written_out_once_for_many_readers() -> None:
    """Of n operands, read by three sums that do not line up: 3 n > n + 1 + 3 MiB and a launch's worth, for 8 and not for 1."""

    def step(*operands: jax.Array) -> list[jax.Array]:
        s = sum(operands[1:], operands[0])
        return [jnp.sum(s, 0), jnp.sum(s.reshape(1024, 256), 0), jnp.sum(s.reshape(256, 1024), 0)]

    assert max(k.written_bytes for k in kernels(lower_function(step, X))) < MiB
    assert max(k.written_bytes for k in kernels(lower_function(step, *[X] * 8))) >= MiB


def test_dead_code_is_dropped() -> None:
    def step(x: jax.Array) -> jax.Array:
        lax.fori_loop(0, 3, lambda i, y: y @ y, x)
        return x + 1

    lowered = lower_function(jax.jit(step), X)
    assert not loops(lowered)
    assert len(kernels(lowered)) == 1


def test_views_and_transposes_into_products_cost_nothing() -> None:
    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return x.reshape(512, 512).T @ y

    (kernel,) = kernels(lower_function(product, spec(256, 1024), X))
    assert kernel.kind is KernelKind.GEMM
    assert kernel.read_bytes == 2 * MiB


def test_a_transpose_that_is_an_output_too_is_written() -> None:
    def product(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x.T, x.T @ x

    lowered = lower_function(product, X)
    assert sorted(k.kind for k in kernels(lowered)) == [KernelKind.GEMM, KernelKind.TRANSPOSE]
    assert lowered.schedule.outputs[0] not in lowered.schedule.inputs


def test_a_transpose_read_by_arithmetic_is_done_there() -> None:
    (kernel,) = kernels(lower_function(lambda x: x.T * 2, X))
    assert kernel.kind is KernelKind.LOOP_FUSION
    assert kernel.ops[0].endswith("transpose")


def test_an_update_of_a_donated_buffer_happens_in_place() -> None:
    def write(x: jax.Array, row: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(x, row * 2, (3, 0))

    row = spec(1, 512)
    (kernel,) = kernels(lower_function(jax.jit(write, donate_argnums=0), X, row))
    assert kernel.updates == (0,)
    assert (kernel.read_bytes, kernel.written_bytes) == (512 * 4, 512 * 4)


def test_an_update_of_an_argument_that_is_not_donated_copies_it() -> None:
    def write(x: jax.Array, row: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(x, row, (3, 0))

    copy, update = kernels(lower_function(write, X, spec(1, 512)))
    assert (copy.name, copy.reads, copy.written_bytes) == ("copy", (0,), MiB)
    assert update.updates == copy.writes
    assert update.written_bytes == 512 * 4


def test_an_update_of_a_value_read_later_copies_it() -> None:
    def write(x: jax.Array, row: jax.Array) -> jax.Array:
        base = x @ x
        return lax.dynamic_update_slice(base, row, (3, 0)) @ base

    made = kernels(lower_function(write, X, spec(1, 512)))
    copy = next(k for k in made if k.name == "copy")
    update = next(k for k in made if "update" in k.name)
    assert update.updates == copy.writes


def test_what_an_update_changes_is_in_memory_before_it_unless_it_is_constant() -> None:
    """What was moved there must be written in full; zeros are written with the row in them."""
    computed = lower_function(
        lambda x, row: lax.dynamic_update_slice(x[:512], row, (3, 0)), spec(1024, 512), spec(1, 512)
    )
    assert sum(kernel.written_bytes for kernel in kernels(computed)) == MiB + 512 * 4
    zeros = lower_function(lambda row: lax.dynamic_update_slice(jnp.zeros((512, 512)), row, (3, 0)), spec(1, 512))
    assert sum(kernel.written_bytes for kernel in kernels(zeros)) == MiB


def test_a_gather_reads_only_what_it_takes() -> None:
    def embed(table: jax.Array, ids: jax.Array) -> jax.Array:
        return table[ids] * 2

    made = kernels(lower_function(embed, spec(50_000, 128), spec(64, dtype="int32")))
    assert sum(kernel.read_bytes for kernel in made) < 3 * 64 * 128 * 4


def test_arithmetic_before_a_slice_is_done_only_where_it_is_read() -> None:
    (kernel,) = kernels(lower_function(lambda x: (jnp.exp(x) + 1)[:64], X))
    assert kernel.read_bytes == kernel.written_bytes == MiB // 8
    assert kernel.transcendentals == 512 * 64


def test_constants_cost_nothing() -> None:
    lowered = lower_function(lambda x: x + jnp.eye(512) * 0 + jnp.arange(512.0), X)
    (kernel,) = kernels(lowered)
    assert kernel.read_bytes == MiB


def test_an_intermediate_that_is_an_output_is_written() -> None:
    made = kernels(lower_function(lambda x: ((y := x + 1), jnp.exp(y)), X))
    assert sum(kernel.written_bytes for kernel in made) == 2 * MiB


def test_siblings_with_the_same_operand_are_one_kernel() -> None:
    (kernel,) = kernels(lower_function(lambda x: (x + 1, x * 2, jnp.exp(x)), X))
    assert len(kernel.writes) == 3
    assert (kernel.read_bytes, kernel.written_bytes) == (MiB, 3 * MiB)


def test_a_loop_keeps_its_body_and_trip_count() -> None:
    lowered = lower_function(lambda x: lax.fori_loop(0, 7, lambda i, y: jnp.tanh(y @ y), x), X)
    (loop,) = loops(lowered)
    assert loop.trips == 7
    assert [s.kind for s in loop.body.steps if isinstance(s, Kernel) and s.written_bytes > 4] == [
        KernelKind.GEMM,
        KernelKind.LOOP_FUSION,
    ]


def test_a_branch_depends_on_what_its_bodies_read() -> None:
    def pick(flag: jax.Array, x: jax.Array) -> jax.Array:
        y = x @ x
        return lax.cond(flag, lambda: y @ y, lambda: y + 1)

    lowered = lower_function(pick, spec(dtype="bool"), X)
    product, *_, branch = [s for s in lowered.schedule.steps if not (isinstance(s, Kernel) and s.written_bytes <= 4)]
    assert set(product.writes) <= set(branch.reads)


def test_arithmetic_is_done_in_the_type_most_of_it_has() -> None:
    (kernel,) = kernels(lower_function(lambda x: (x * 2 + 1).astype(jnp.bfloat16), X))
    assert kernel.dtype == "f32"


def _attention_step(x: jax.Array, w: jax.Array) -> jax.Array:
    h = jnp.tanh(x @ w)
    p = jax.nn.softmax(h @ h.T / 3.0, -1)
    return jnp.sum((p @ h) ** 2)


def _check_order(schedule: Schedule) -> None:
    known = set(schedule.inputs)
    written = {v for step in schedule.steps for v in step.writes}
    for step in schedule.steps:
        assert all(value in known or value not in written for value in step.reads)
        known.update(step.writes)
        if isinstance(step, LoopStep):
            _check_order(step.body)


@pytest.mark.parametrize("backend", ["xla-gpu", "xla-tpu", "none"])
def test_no_kernel_reads_what_is_not_yet_written(backend: str) -> None:
    lowered = lower_function(jax.grad(_attention_step, argnums=(0, 1)), X, X, backend=backend)
    _check_order(lowered.schedule)


_UNARY = (jnp.tanh, jnp.exp, lambda x: x.T, lambda x: x @ x, lambda x: x - jnp.max(x, -1, keepdims=True), lambda x: -x)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=10))
def test_random_graphs_lower_to_ordered_kernels_that_do_all_the_work(graph: list[tuple[int, int, int]]) -> None:
    def build(x: jax.Array, y: jax.Array) -> jax.Array:
        values = [x, y]
        for kind, a, b in graph:
            values.append(_UNARY[kind](values[a % len(values)]) + values[b % len(values)])
        return values[-1]

    lowered = lower_function(partial(build), spec(16, 16), spec(16, 16))
    _check_order(lowered.schedule)
    live = {value for kernel in kernels(lowered) for value in kernel.writes}
    assert all(out in live or out in lowered.schedule.inputs for out in lowered.schedule.outputs)
    plain = lower_function(partial(build), spec(16, 16), spec(16, 16), backend="none")
    fused_bytes = sum(k.read_bytes + k.written_bytes for k in kernels(lowered))
    joined = sum(k.read_bytes + k.written_bytes for k in kernels(lowered) if "joined" in k.flags)  # merged products
    assert fused_bytes - joined <= sum(k.read_bytes + k.written_bytes for k in kernels(plain))
    needed = live_ops(lowered.workload.body, FreeValues())  # what is computed twice alike is computed once
    once = {op.equal or op.results: op.cost.matrix_flops for op in needed}
    assert sum(k.matrix_flops for k in kernels(lowered)) == sum(once.values())
    assert all(op.cost.kind is not OpKind.LOOP for op, _ in lowered.workload.walk())


def test_levels_of_an_associative_scan_are_several_kernels() -> None:
    """Each level is asked for at twice as many places as the one above it: in one kernel the first would run 64 times."""

    def scan(x: jax.Array) -> jax.Array:
        return jax.lax.associative_scan(jnp.multiply, jnp.exp(x), axis=0)

    made = kernels(lower_function(scan, spec(128, 4096)))
    work = sum(kernel.vector_flops for kernel in made)
    assert 3 <= len(made) <= 5
    assert work < 8 * 128 * 4096  # 2 of them are needed


def test_random_bits_are_a_kernel_over_the_bits_that_others_read() -> None:
    """A generator has two results, its state and the bits; the kernel is as wide as the bits."""
    lowered = lower_text(
        """func.func public @main(%s: tensor<2xui64>) -> tensor<4096xf32> {
          %state, %bits = stablehlo.rng_bit_generator %s, algorithm = DEFAULT
            : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4096xui32>)
          %f = stablehlo.convert %bits : (tensor<4096xui32>) -> tensor<4096xf32>
          return %f : tensor<4096xf32>
        }"""
    )
    drawing, converting = kernels(lowered)
    assert (drawing.elements, converting.elements) == (4096, 4096)
    assert drawing.ops == ("stablehlo.rng_bit_generator",)


def test_indices_are_computed_inside_the_gather_that_reads_them() -> None:
    """A gather asks for each index once, however long its rows are: XLA makes one kernel of look-ups and their sum."""

    def pooled(table: jax.Array, indices: jax.Array) -> jax.Array:
        wrapped = jnp.where(indices < 0, indices + 1_000_000, indices)
        return table.at[wrapped].get(mode="promise_in_bounds").sum(axis=1)

    lowered = lower_function(pooled, spec(1_000_000, 128), spec(16_384, 32, dtype="int32"))
    assert [kernel.kind for kernel in kernels(lowered)] == [KernelKind.REDUCTION]
