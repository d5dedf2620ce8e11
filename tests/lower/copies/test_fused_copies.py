"""Copies of what a pass over elements has just written are results of that pass."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from meshcast.lower.copies.fused_copies import with_fused_copies
from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import Kernel, KernelKind, LoopStep, Schedule
from meshcast.workload import Tensor
from tests.lower.programs import kernels, lower_function, spec

T = Tensor(shape=(1024,), dtype="f32")


def made(ops: tuple[str, ...], reads: tuple[int, ...] = (0,), kind: KernelKind = KernelKind.LOOP_FUSION) -> Kernel:
    return Kernel(
        name="made", kind=kind, dtype="f32", ops=ops, reads=reads, operand_bytes=(4096,) * len(reads), writes=(1,),
        read_bytes=4096 * len(reads), written_bytes=4096,
    )  # fmt: skip


def fused(kernel: Kernel) -> tuple[object, ...]:
    steps = (kernel, copy_kernel(1, 2, T, ""), copy_kernel(1, 3, T, ""))
    return with_fused_copies(Schedule(inputs=(0,), outputs=(1, 2, 3), steps=steps)).steps


def test_copies_are_written_by_the_kernel_that_has_the_elements() -> None:
    (kernel,) = fused(made(("stablehlo.add", "stablehlo.multiply")))
    assert isinstance(kernel, Kernel)
    assert kernel.writes == (1, 2, 3)
    assert (kernel.read_bytes, kernel.written_bytes) == (4096, 3 * 4096)
    assert "copy" not in kernel.flags


def test_fusions_that_read_elsewhere_and_single_ops_take_none() -> None:
    assert len(fused(made(("stablehlo.add", "stablehlo.transpose")))) == 3
    assert len(fused(made(("stablehlo.add", "stablehlo.broadcast_in_dim")))) == 3
    assert len(fused(made(("stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.add")))) == 1
    assert len(fused(made(("stablehlo.add",)))) == 3
    assert len(fused(made(("stablehlo.add", "stablehlo.reduce"), kind=KernelKind.REDUCTION))) == 3
    assert len(fused(made(("stablehlo.constant", "stablehlo.broadcast_in_dim"), reads=()))) == 1


def test_bodies_of_loops_have_theirs_fused() -> None:
    kernel = made(("stablehlo.add", "stablehlo.multiply"))
    body = Schedule(inputs=(0,), outputs=(2,), steps=(kernel, copy_kernel(1, 2, T, "")))
    loop = LoopStep(label="loop", body=body, trips=3, reads=(0,), writes=(4,))
    (found,) = with_fused_copies(Schedule(inputs=(0,), outputs=(4,), steps=(loop,))).steps
    assert found == replace(loop, body=with_fused_copies(body))
    assert len(found.body.steps) == 1


def test_zeros_that_several_scatters_add_to_are_written_at_once() -> None:
    def sums(x: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.ops.segment_sum(x * k, i, 64) for k in range(1, 4))

    found = kernels(lower_function(sums, spec(4096, 8), spec(4096, dtype="int32")))
    zeros = [kernel for kernel in found if kernel.kind is KernelKind.LOOP_FUSION and not kernel.reads]
    assert [len(kernel.writes) for kernel in zeros] == [3]  # the last scatter takes the zeros themselves
    assert jnp.dtype("float32").itemsize * 64 * 8 * 3 == zeros[0].written_bytes
