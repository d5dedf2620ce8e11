"""Products whose rows are no multiple of 16 bytes."""

from __future__ import annotations

import pytest

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Gemm
from tests.estimate.gpu.test_models import H200


def test_heads_of_odd_lengths_move_their_bytes_more_than_once() -> None:
    """1,536 heads of 197 x 197 by 64 took 103 to 117 us on an H200, 2.2 to 2.5 times as long as their bytes; 192 do not."""

    def product(length: int) -> Kernel:
        shape = Gemm(
            batch=1536, m=length, n=64, k=length, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16",
            lhs_contracting_minor=True, rhs_contracting_minor=False,
        )  # fmt: skip
        read, written = 1536 * (length * length + 64 * length) * 2, 1536 * length * 64 * 2
        return Kernel(
            name="dot", kind=KernelKind.GEMM, dtype="bf16", geometry=shape, matrix_flops=2.0 * 1536 * length * length * 64,
            read_bytes=read, written_bytes=written, operand_bytes=(read,), elements=1536 * length * 64,
        )  # fmt: skip

    odd, even = (GpuAnalytical().work(product(length), H200).memory for length in (197, 192))
    assert odd / even == pytest.approx(1.6 * (197 / 192) ** 2, rel=0.1)
