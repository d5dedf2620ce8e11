"""ReLUs that products compute on the way in."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, KernelKind, LoweredProgram, computes_operands
from meshcast.workload import Gemm
from tests.lower.programs import lower_function, spec


def _names(lowered: LoweredProgram) -> list[str]:
    return [kernel.name for kernel, _ in lowered.schedule.walk()]


def _two_layers(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    return jnp.sum(jax.nn.relu(x @ first) @ second)


def test_products_take_the_relu_of_what_is_kept_for_its_gradient() -> None:
    """The next layer's product and the gradient of its weights read what the mask needs: no result of a ReLU is in memory."""
    step = jax.grad(_two_layers, argnums=(1, 2))
    lowered = lower_function(step, spec(512, 256), spec(256, 1024), spec(1024, 256))
    assert not any("maximum" in name for name in _names(lowered))
    cutting = [
        k for k, _ in lowered.schedule.walk() if k.kind is KernelKind.GEMM and k.vector_flops and len(k.ops) == 1
    ]
    assert cutting
    assert all(kernel.vector_flops == 512 * 1024 for kernel in cutting)


def test_a_relu_that_is_read_alone_stays_with_the_product_before() -> None:
    lowered = lower_function(_two_layers, spec(512, 256), spec(256, 1024), spec(1024, 256))
    assert "gemm:maximum" in _names(lowered)


@pytest.mark.parametrize("returned", [True, False])
def test_a_relu_that_others_read_is_in_memory(returned: bool) -> None:
    """Returned, or read by a pass beside the product."""

    def function(x: jax.Array, first: jax.Array, second: jax.Array) -> tuple[jax.Array, ...]:
        before = x @ first
        cut = jnp.maximum(before, 0.0)
        return before, cut @ second, cut if returned else jnp.sin(cut)

    lowered = lower_function(function, spec(512, 256), spec(256, 1024), spec(1024, 256))
    products = [k for k, _ in lowered.schedule.walk() if k.kind is KernelKind.GEMM]
    assert not any(kernel.vector_flops and len(kernel.ops) == 1 for kernel in products)


def test_weights_that_are_widened_on_the_way_in_are_no_computed_operands() -> None:
    """Widening is arithmetic on operands, too; the kernels that do it for few rows keep their rate."""
    shape = Gemm(
        batch=1,
        m=128,
        n=4096,
        k=4096,
        lhs_dtype="bf16",
        rhs_dtype="bf16",
        out_dtype="bf16",
        lhs_contracting_minor=True,
        rhs_contracting_minor=False,
    )
    kernel = Kernel(name="dot", kind=KernelKind.GEMM, dtype="bf16", vector_flops=1.0, ops=("stablehlo.dot_general",))
    assert computes_operands(kernel, shape)
    assert not computes_operands(kernel, replace(shape, stored_dtype="i8"))
    assert not computes_operands(replace(kernel, ops=(*kernel.ops, "stablehlo.add")), shape)
    assert not computes_operands(replace(kernel, vector_flops=0.0), shape)
