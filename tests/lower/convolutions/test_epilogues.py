"""What cuDNN adds inside a convolution's call, on programs whose kernels can be counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import Kernel, KernelKind
from tests.lower.programs import kernels, lower_function, spec

IMAGE, FILTER, BIAS = spec(8, 32, 32, 64), spec(64, 3, 3, 64), spec(64)
SIZE = 8 * 32 * 32 * 64 * 4


def convolved(x: jax.Array, w: jax.Array, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC"), feature_group_count=groups
    )


def call(function: Callable[..., object], *args: jax.ShapeDtypeStruct) -> tuple[list[Kernel], Kernel]:
    made = kernels(lower_function(function, *args))
    (found,) = [kernel for kernel in made if kernel.kind is KernelKind.CONVOLUTION]
    return made, found


def test_a_bias_and_a_relu_are_the_calls_own() -> None:
    made, found = call(lambda x, w, b: jax.nn.relu(convolved(x, w) + b), IMAGE, FILTER, BIAS)
    assert made == [found]
    assert found.read_bytes == SIZE + 64 * 64 * 9 * 4 + 64 * 4
    assert found.vector_flops == 2 * SIZE / 4


def test_an_addend_of_the_results_size_joins_once() -> None:
    made, found = call(lambda x, w, b: convolved(x, w) + b + x, IMAGE, FILTER, BIAS)
    assert made == [found]
    made, found = call(lambda x, w: convolved(x, w) + x + jnp.tanh(x), IMAGE, FILTER)
    assert [kernel.kind for kernel in made] == [KernelKind.CONVOLUTION, KernelKind.LOOP_FUSION]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: jnp.tanh(convolved(x, w) * 2 + b),  # a multiplication is in between
        lambda x, w, b: [convolved(x, w), convolved(x, w) + b],  # the result is needed without it, too
        lambda x, w, b: convolved(x, w[..., :1], 64) + b,  # depthwise
    ],
)
def test_what_joins_no_call(function: Callable[..., object]) -> None:
    made, found = call(function, IMAGE, FILTER, BIAS)
    assert found.vector_flops == 0
    assert len(made) > 1


def test_a_window_computes_what_leads_to_it_unless_others_need_it_too() -> None:
    def pooled(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    assert len(kernels(lower_function(lambda x: pooled(jax.nn.relu(x * 2)), IMAGE))) == 1
    both, window = kernels(lower_function(lambda x: (pooled(y := jax.nn.relu(x * 2)), jnp.tanh(y)), IMAGE))
    assert len(both.writes) == 2
    assert not {"stablehlo.multiply", "stablehlo.maximum"} & set(window.ops)
