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
