"""The silicon tables as kernels: what our lowering makes of the same products and attention calls, with their seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from meshcast.estimate.measurements.silicon_tables import Attentions, Measured, Products
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind, Recency, is_summed
from meshcast.workload import DTYPE_BITS, FORWARD_VECTOR_FLOPS, Attention, Gemm, Tensor, attended

REPLAYS = 12  # of a captured graph: three calls and three replays to warm up, then six that are timed


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconKernel:
    """A measured call: `seconds` hold the kernel and the gap to the next one, in a run of `calls` without a pause."""

    kernel: Kernel
    seconds: float
    calls: int
    source: Measured

    @property
    def run_seconds(self) -> float:
        """How long the run lasted, warm-up included: whether the power cap had settled."""
        return self.calls * self.seconds


def product_kernels(device: Device, rows: Products) -> Iterator[SiliconKernel]:
    """Products as kernels, weights as old as their copies make them; none of those that XLA does not leave to a library.

    Args:
        device: What they were measured on.
        rows: The products.
    """
    for m, n, k, dtype, seconds in zip(
        rows.m.tolist(), rows.n.tolist(), rows.k.tolist(), rows.dtype.tolist(), rows.seconds.tolist(), strict=True
    ):
        weights = n * k * DTYPE_BITS[dtype] // 8
        copies = weight_copies(rows.source.framework, weights, device.cache_bytes)
        kernel = product_kernel(m, n, k, dtype, age=(copies - 1) * weights)
        assert isinstance(kernel.geometry, Gemm)
        if not is_summed(kernel.geometry):
            yield SiliconKernel(kernel=kernel, seconds=seconds, calls=REPLAYS * copies, source=rows.source)


def weight_copies(framework: str, weights: int, cache: float) -> int:
    """How many copies of the weights take turns in a captured graph."""
    return max(1, min(5, math.ceil(cache / weights))) if framework == "trtllm" else 6


def product_kernel(m: int, n: int, k: int, dtype: str, *, age: int = 0) -> Kernel:
    """The kernel of `x @ w.T` with `x` of `m x k`, `w` of `n x k`; f8 operands give bf16.

    Args:
        m: Rows.
        n: Columns.
        k: Length of the sums.
        dtype: The dtype of the operands.
        age: Bytes moved since the weights were last read; the activations and the result's buffer were just used.
    """
    out = dtype if dtype in ("bf16", "f16") else "bf16"
    lhs, rhs, result = (Tensor((m, k), dtype), Tensor((n, k), dtype), Tensor((m, n), out))
    geometry = Gemm(
        batch=1,
        m=m,
        n=n,
        k=k,
        lhs_dtype=dtype,
        rhs_dtype=dtype,
        out_dtype=out,
        lhs_contracting_minor=True,
        rhs_contracting_minor=True,
    )
    return Kernel(
        name="gemm:dot_general",
        kind=KernelKind.GEMM,
        dtype=dtype,
        matrix_flops=2 * m * n * k,
        read_bytes=lhs.bytes + rhs.bytes,
        written_bytes=result.bytes,
        operand_bytes=(lhs.bytes, rhs.bytes),
        geometry=geometry,
        elements=result.elements,
        shape=result.shape,
        ops=("stablehlo.dot_general",),
        recency=Recency(reads=((0, lhs.bytes), (age, rhs.bytes))) if age else None,
    )


def attention_kernels(rows: Attentions) -> Iterator[SiliconKernel]:
    """Attention calls as kernels."""
    columns = (rows.batch, rows.heads, rows.kv_heads, rows.q_len, rows.kv_len, rows.head_dim, rows.dtype, rows.seconds)
    for batch, heads, kv_heads, q_len, kv_len, head_dim, dtype, seconds in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        shape = Attention(
            batch=batch,
            heads=heads,
            kv_heads=kv_heads,
            q_len=q_len,
            kv_len=kv_len,
            head_dim=head_dim,
            dtype=dtype,
            causal=True,
            backward=False,
        )
        yield SiliconKernel(kernel=attention_kernel(shape), seconds=seconds, calls=REPLAYS, source=rows.source)


def attention_kernel(shape: Attention) -> Kernel:
    """The kernel of a forward call with heads of one size; results of f8 operands are bf16."""
    out = shape.dtype if shape.dtype in ("bf16", "f16") else "bf16"
    query = Tensor((shape.batch, shape.q_len, shape.heads, shape.head_dim), shape.dtype)
    key = Tensor((shape.batch, shape.kv_len, shape.kv_heads, shape.head_dim), shape.dtype)
    result = Tensor(query.shape, out)
    scores = shape.batch * shape.heads * attended(shape)
    return Kernel(
        name="attention",
        kind=KernelKind.ATTENTION,
        dtype=shape.dtype,
        matrix_flops=4 * scores * shape.head_dim,
        vector_flops=FORWARD_VECTOR_FLOPS * scores,
        transcendentals=scores,
        read_bytes=query.bytes + 2 * key.bytes,
        written_bytes=result.bytes,
        operand_bytes=(query.bytes, key.bytes, key.bytes),
        geometry=shape,
        elements=result.elements,
        shape=result.shape,
    )
