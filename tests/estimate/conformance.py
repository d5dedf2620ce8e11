"""What every estimator must keep to, whoever wrote it: call `check_conformance` from a test of your own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshcast.base.mesh import Group
from meshcast.estimate import Estimator
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Collective, Gemm, Reduction


def gemm(
    m: int, n: int, k: int, *, dtype: str = "bf16", out: str = "bf16", batch: int = 1, precision: str = "DEFAULT"
) -> Kernel:
    """A product as lowering would make it, with one byte per 8 bits of its type."""
    width = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8}.get(dtype, 1)
    written = batch * m * n * {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "f64": 8}.get(out, 1)
    return Kernel(
        name="gemm:dot_general",
        kind=KernelKind.GEMM,
        dtype=dtype,
        matrix_flops=2.0 * batch * m * n * k,
        read_bytes=batch * (m * k + k * n) * width,
        written_bytes=written,
        geometry=Gemm(
            batch=batch, m=m, n=n, k=k, lhs_dtype=dtype, rhs_dtype=dtype, out_dtype=out, lhs_contracting_minor=True,
            rhs_contracting_minor=False, precision=precision,
        ),
    )  # fmt: skip


def pass_over(bytes_read: int, bytes_written: int, *, vector: float = 0.0, functions: float = 0.0) -> Kernel:
    """An elementwise kernel over f32."""
    return Kernel(
        name="loop-fusion:add", kind=KernelKind.LOOP_FUSION, dtype="f32", vector_flops=vector,
        transcendentals=functions, read_bytes=bytes_read, written_bytes=bytes_written,
    )  # fmt: skip


SAMPLES: Sequence[Kernel] = (
    gemm(1024, 1024, 1024),
    gemm(1, 4096, 11008),
    gemm(256, 256, 64, batch=96, dtype="f32", out="f32"),
    pass_over(2**30, 2**29, vector=1e9, functions=1e8),
    pass_over(4096, 4096, vector=1024),
    pass_over(0, 0),
    Kernel(
        name="reduction:add", kind=KernelKind.REDUCTION, dtype="f32", vector_flops=2.0**20, read_bytes=2**22,
        written_bytes=4096, geometry=Reduction(shape=(1024, 1024), dims=(1,)),
    ),
)  # fmt: skip

COLLECTIVE = Kernel(
    name="collective:all_reduce",
    kind=KernelKind.COLLECTIVE,
    dtype="",
    geometry=Collective(kind="all_reduce", group=Group(dims=((8, 1),)), input_bytes=1024, output_bytes=1024),
)

COLUMNS = ("time", "low", "high", "compute_time", "memory_time", "overhead", "energy")


def check_conformance(estimator: Estimator, device: Device) -> None:
    """Names, supports, and times that are finite, non-negative, inside their interval and independent of the batch."""
    assert estimator.name
    assert estimator.fidelity
    assert estimator.supports(COLLECTIVE, device).level == "no"
    supports = [estimator.supports(kernel, device) for kernel in SAMPLES]
    assert supports == [estimator.supports(kernel, device) for kernel in SAMPLES]
    assert all(support.level == "yes" or support.reason for support in supports)
    kernels = [kernel for kernel, support in zip(SAMPLES, supports, strict=True) if support.level != "no"]
    batch = estimator.estimate(kernels, device)
    for name in COLUMNS:
        column = getattr(batch, name)
        assert column.shape == (len(kernels),)
        assert np.all(np.isfinite(column))
        assert np.all(column >= 0)
    assert len(batch.origin) == len(kernels)
    assert np.all(batch.low <= batch.time)
    assert np.all(batch.time <= batch.high)
    for index, kernel in enumerate(kernels):
        single = estimator.estimate([kernel], device)
        assert all(getattr(single, name)[0] == getattr(batch, name)[index] for name in COLUMNS)
    assert estimator.estimate([], device).time.shape == (0,)
