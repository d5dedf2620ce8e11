"""Fusion as XLA:TPU does it: around products, with reductions as roots, and functions computed once."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower.kernel import KernelKind
from tests.lower.programs import kernels, loops, lower_function, spec

TPU = "xla-tpu"


def test_a_product_takes_in_what_leads_to_it_and_what_follows() -> None:
    """Casts of an operand, a bias, gelu and a residual: one kernel."""

    def step(x, w, b, r):  # type: ignore[no-untyped-def]
        return jax.nn.gelu(jnp.exp(x).astype(jnp.bfloat16) @ w + b) + r

    args = (
        spec(256, 512),
        spec(512, 1024, dtype="bfloat16"),
        spec(1024, dtype="bfloat16"),
        spec(256, 1024, dtype="bfloat16"),
    )
    (only,) = kernels(lower_function(step, *args, backend=TPU))
    assert only.kind is KernelKind.GEMM
    assert only.transcendentals >= 256 * 512 + 256 * 1024
    assert only.read_bytes == 4 * 256 * 512 + 2 * (512 * 1024 + 1024 + 256 * 1024)


def test_one_product_a_kernel() -> None:
    """What lies between two products goes to the second."""

    def step(x, v, w):  # type: ignore[no-untyped-def]
        return jnp.tanh(x @ v) @ w

    first, second = kernels(lower_function(step, spec(256, 256), spec(256, 512), spec(512, 256), backend=TPU))
    assert first.transcendentals == 0
    assert second.transcendentals == 256 * 512


def test_convolutions_fuse_likewise() -> None:
    def step(x, w):  # type: ignore[no-untyped-def]
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"))

    (only,) = kernels(lower_function(step, spec(8, 64, 28, 28), spec(64, 64, 3, 3), backend=TPU))
    assert only.kind is KernelKind.CONVOLUTION
    assert only.vector_flops


def test_sums_come_out_of_the_kernel_that_makes_their_operand() -> None:
    """A batch norm's statistics of a convolution's result."""

    def step(x, w):  # type: ignore[no-untyped-def]
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")
        return y, y.sum((0, 2, 3)), (y * y).sum((0, 2, 3))

    (only,) = kernels(lower_function(step, spec(8, 64, 28, 28), spec(64, 64, 3, 3), backend=TPU))
    assert only.kind is KernelKind.CONVOLUTION
    assert len(only.writes) == 3
    assert only.matrix_flops


def test_a_reduction_is_a_root() -> None:
    """A norm is its sum, and a pass over the rows again."""

    def step(x):  # type: ignore[no-untyped-def]
        return x / jnp.sqrt((x * x).sum(-1, keepdims=True))

    found = kernels(lower_function(step, spec(4096, 1024), backend=TPU))
    assert found[0].kind is KernelKind.REDUCTION
    assert found[-1].kind is KernelKind.LOOP_FUSION
    assert len(kernels(lower_function(step, spec(4096, 1024)))) == 1  # on GPUs a row fusion


def test_a_softmax_that_a_product_reads_is_written_nowhere() -> None:
    """One kernel sums the exponentials, the product computes them again on their way in."""

    def step(s, v):  # type: ignore[no-untyped-def]
        e = jnp.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)) @ v

    found = kernels(lower_function(step, spec(1024, 1024), spec(1024, 64), backend=TPU))
    assert sum(kernel.transcendentals for kernel in found) == 2 * 1024 * 1024
    assert all(kernel.written_bytes < 1024 * 1024 for kernel in found)


def test_an_exponential_that_is_a_result_too_is_computed_once() -> None:
    def step(s):  # type: ignore[no-untyped-def]
        e = jnp.exp(s)
        return e, e.sum(-1)

    found = kernels(lower_function(step, spec(1024, 1024), backend=TPU))
    assert sum(kernel.transcendentals for kernel in found) == 1024 * 1024


def test_a_mask_that_a_loop_only_reads_is_made_inside() -> None:
    """The loop's kernels read the row that the mask is spread from, not the mask."""

    def step(x, row):  # type: ignore[no-untyped-def]
        mask = jnp.broadcast_to(row, (1024, 1024))
        return jax.lax.fori_loop(0, 8, lambda i, y: jnp.sin(y) + mask, x)

    (loop,) = loops(lower_function(step, spec(1024, 1024), spec(1024), backend=TPU))
    assert sum(kernel.read_bytes for kernel, _ in loop.body.walk()) < 1.1 * 4 * 1024 * 1024


def test_a_buffer_that_a_loop_fills_is_not_cleared() -> None:
    def step(x):  # type: ignore[no-untyped-def]
        return jax.lax.scan(lambda y, _: (jnp.sin(y), y), x, None, length=16)[1]

    lowered = lower_function(step, spec(1024, 1024), backend=TPU)
    assert loops(lowered)
    assert not [kernel for kernel in kernels(lowered) if kernel.written_bytes > 2**20]


def test_a_gather_is_written_down_before_it_is_read() -> None:
    """As libtpu 0.0.42 compiles it: a kernel that picks the slices, and one that sums them up."""

    def step(table, places):  # type: ignore[no-untyped-def]
        return (jnp.take(table, places, axis=0, mode="clip") * 2).sum()

    made = kernels(lower_function(step, spec(4096, 256), spec(1024, dtype="int32"), backend=TPU))
    picking, summing = (
        next(k for k in made if any(op.endswith(name) for op in k.ops)) for name in ("gather", "reduce")
    )
    assert picking.written_bytes == summing.operand_bytes[0] == 4 * 1024 * 256
    assert summing.kind is KernelKind.REDUCTION
