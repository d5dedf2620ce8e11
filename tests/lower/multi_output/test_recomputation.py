"""What a fusion asks for several times, and multi-output fusions that would compute it as often."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import Kernel
from meshcast.lower.kernel import KernelKind
from meshcast.lower.multi_output.joint_kernel_times import is_slower_repeated
from tests.lower.programs import kernels, lower_function, spec

N = 1 << 20


def around(x: jax.Array) -> jax.Array:
    return jnp.roll(x, 1, 1)


def difference(x: jax.Array) -> jax.Array:
    return x - around(x)


def test_results_that_only_their_own_kernel_reads_are_not_written() -> None:
    """A value that two results of one pass are made of: HloDCE drops it once both are in one fusion."""

    def step(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        soft = jnp.tanh(jnp.exp(x) + 1)
        return soft * jnp.exp(x), jnp.exp(soft) * x

    lowered = lower_function(step, spec(1024, 1024))
    read = {value for kernel in kernels(lowered) for value in kernel.reads} | set(lowered.schedule.outputs)
    assert [value for kernel in kernels(lowered) for value in kernel.writes if value not in read] == []
    assert sum(kernel.written_bytes for kernel in kernels(lowered)) == 2 * 4 * N


def test_a_flux_that_neighbours_ask_for_as_well_is_a_kernel_of_its_own() -> None:
    """A scheme on a grid: fluxes of rolled fields, differences of which are rolled again (as jax-cfd has them)."""

    def step(u: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = (u + around(u)) * (v + around(v)) / (1 + jnp.abs(u))
        second = first - 0.1 * difference(first)
        return first, difference(second) / (1 + second * second)

    made = kernels(lower_function(step, spec(1024, 1024), spec(1024, 1024)))
    assert len(made) > 1
    assert all(kernel.kind is KernelKind.LOOP_FUSION for kernel in made)


def a_pass(reads: tuple[int, ...], write: int) -> Kernel:
    sizes = tuple(4 * N for _ in reads)
    return Kernel(
        name="pass",
        kind=KernelKind.LOOP_FUSION,
        dtype="f32",
        read_bytes=sum(sizes),
        written_bytes=4 * N,
        reads=reads,
        operand_bytes=sizes,
        writes=(write,),
        elements=N,
    )


@pytest.mark.parametrize(
    ("cycles", "times", "slower"),
    [(100.0, 1.0, False), (10.0, 3.0, False), (2000.0, 2.0, True), (2000.0, 1.0, False)],
)
def test_computing_something_again_is_slower_where_it_takes_long(cycles: float, times: float, slower: bool) -> None:
    """`132 * 128` lanes of 3.96e9 cycles a second: 2,000 cycles of each of a million elements are 31 us."""
    maker, reader = a_pass((0,), 1), a_pass((1,), 2)
    assert is_slower_repeated(maker, reader, 1, cycles * N, 10.0 * N, times) is slower
