"""What a kernel may write its results over."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import Kernel, KernelKind
from tests.lower.programs import loops, lower_function, spec


def test_gradients_that_a_loop_adds_up_are_added_where_they_lie() -> None:
    """A product's epilogue adds to what the loop carries: no turn copies it, and the factors are never written over."""

    def summed(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda w, xy: (w + xy[0].T @ xy[1], None), jnp.zeros((256, 512)), (x, y))[0]

    (loop,) = loops(lower_function(summed, spec(8, 64, 256), spec(8, 64, 512)))
    body = [step for step in loop.body.steps if isinstance(step, Kernel)]
    assert [kernel.kind for kernel in body].count(KernelKind.GEMM) == 1
    assert not [kernel for kernel in body if kernel.ops == ("copy",) and kernel.written_bytes == 256 * 512 * 4]
