"""Ragged products on GPUs: masked operands and dense products for XLA, one grouped kernel for stacks that have one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast import predict
from meshcast.lower import lower
from meshcast.lower.kernel import Kernel
from meshcast.programs import capture
from meshcast.workload import read_workload
from meshcast.workload.graph import Gemm

GROUPS, ROWS, INNER, COLUMNS = 8, 1024, 256, 512
X = jax.ShapeDtypeStruct((ROWS, INNER), jnp.bfloat16)
W = jax.ShapeDtypeStruct((GROUPS, INNER, COLUMNS), jnp.bfloat16)
SIZES = jax.ShapeDtypeStruct((GROUPS,), jnp.int32)
ONCE = 2 * ROWS * INNER * COLUMNS


def kernels(function: Any, *, ragged: Any = "masked", backend: str = "xla-gpu") -> list[Kernel]:
    lowered = lower(read_workload(capture(function, X, W, SIZES, name="ragged")), backend=backend, ragged=ragged)
    return [step for step in lowered.schedule.steps if isinstance(step, Kernel)]


def weight_gradient(x: Any, w: Any, sizes: Any) -> Any:
    return jax.grad(lambda w: lax.ragged_dot(x, w, sizes).astype(jnp.float32).sum())(w)


def test_rows_are_masked_once_for_each_group() -> None:
    made = kernels(lax.ragged_dot)
    products = [kernel for kernel in made if kernel.matrix_flops]
    assert [kernel.matrix_flops for kernel in products] == [GROUPS * ONCE]
    shape = products[0].geometry
    assert isinstance(shape, Gemm)
    assert (shape.batch, shape.m, shape.n, shape.k, shape.groups) == (1, ROWS, COLUMNS, GROUPS * INNER, 1)
    assert max(kernel.written_bytes for kernel in made if not kernel.matrix_flops) == 2 * GROUPS * ROWS * INNER
    # Only one of G products of a row is the model's.
    assert products[0].redundant_flops == pytest.approx((GROUPS - 1) * ONCE)


def test_what_is_summed_over_is_masked_once_for_each_group() -> None:
    products = [kernel for kernel in kernels(weight_gradient) if kernel.matrix_flops]
    shapes = [kernel.geometry for kernel in products]
    assert [(s.batch, s.k, s.split) for s in shapes if isinstance(s, Gemm)] == [(GROUPS, ROWS, 1)]
    assert [kernel.matrix_flops for kernel in products] == [GROUPS * ONCE]


@pytest.mark.parametrize(("ragged", "backend"), [("grouped", "xla-gpu"), ("masked", "xla-tpu")])
def test_a_grouped_kernel_multiplies_each_row_once(ragged: str, backend: str) -> None:
    """A TPU's compiler has one too."""
    for function in (lax.ragged_dot, weight_gradient):
        assert sum(kernel.matrix_flops for kernel in kernels(function, ragged=ragged, backend=backend)) == ONCE


def test_the_stack_decides() -> None:
    program = capture(lax.ragged_dot, X, W, SIZES, name="ragged")
    by_xla, by_torch = (predict(program, on="h200", stack=stack) for stack in ("xla", "pytorch-compile"))
    assert by_xla.flops == by_torch.flops  # of the program, however it is run
    assert by_xla.hbm_bytes > by_torch.hbm_bytes + 2 * (GROUPS - 1) * ROWS * INNER
