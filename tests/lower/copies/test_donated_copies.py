"""Donated arguments are copied where an output takes their memory while somebody else may still read them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel, LoweredProgram, lower
from meshcast.programs import capture
from meshcast.workload import read_workload
from tests.lower.programs import kernels, spec


def copies(lowered: LoweredProgram) -> list[Kernel]:
    return [kernel for kernel in kernels(lowered) if "copy" in kernel.flags]


def sgd(w: jax.Array, x: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A step of one layer: its weight's gradient does not wait for the product of `dy` and the old weight."""
    return w - 0.1 * (x.T @ dy), dy @ w.T


def clipped(w: jax.Array, x: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same with an update that waits for the other reader."""
    dx = dy @ w.T
    return w - 0.1 * (x.T @ dy) * jnp.sum(dx), dx


@pytest.mark.parametrize(("step", "donated", "expected"), [(sgd, True, 1), (sgd, False, 0), (clipped, True, 0)])
def test_a_weight_that_the_backward_pass_reads_beside_its_update_is_copied(
    step: object, donated: bool, expected: int
) -> None:
    function = jax.jit(step, donate_argnums=(0,) if donated else ())  # type: ignore[call-overload]
    args = (spec(512, 256), spec(1024, 512), spec(1024, 256))
    lowered = lower(read_workload(capture(function, *args, name="a step")))
    found = copies(lowered)
    assert [kernel.written_bytes for kernel in found] == [512 * 256 * 4] * expected
    if found:  # all read the copy, and the argument's memory is free to be written
        argument = lowered.schedule.inputs[0]
        assert [kernel for kernel in kernels(lowered) if argument in kernel.reads] == found


@pytest.mark.parametrize("carried", [True, False])
def test_a_stack_that_a_loop_makes_of_another_is_copied_into_its_memory(carried: bool) -> None:
    """A cache that is handed in part by part lies beside the new one; one that the loop carries is updated where it lies."""

    def in_parts(x: jax.Array, cache: jax.Array) -> tuple[jax.Array, jax.Array]:
        def turn(x: jax.Array, part: jax.Array) -> tuple[jax.Array, jax.Array]:
            part = jax.lax.dynamic_update_slice(part, x, (3, 0))
            return x + part.sum(0, keepdims=True), part

        return jax.lax.scan(turn, x, cache)

    def whole(x: jax.Array, cache: jax.Array) -> tuple[jax.Array, jax.Array]:
        def turn(carry: tuple[jax.Array, jax.Array], layer: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
            x, cache = carry
            cache = jax.lax.dynamic_update_slice(cache, x[None], (layer, 3, 0))
            return (x + cache[layer].sum(0, keepdims=True), cache), None

        return jax.lax.scan(turn, (x, cache), jnp.arange(4))[0]

    step = jax.jit(whole if carried else in_parts, donate_argnums=(1,))
    lowered = lower(read_workload(capture(step, spec(1, 64), spec(4, 512, 64), name="a turn")))
    found = [kernel for kernel in copies(lowered) if kernel.written_bytes == 4 * 512 * 64 * 4]
    assert len(found) == (not carried)
    assert all(kernel.writes[0] in lowered.schedule.outputs for kernel in found)
