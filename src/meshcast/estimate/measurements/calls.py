"""Measured calls of libraries (`benchmarks/torch_kernels.py`) as kernels: products and fused attention, each with its seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshcast.estimate.measurements.silicon_kernels import attention_kernel, product_kernel
from meshcast.lower import Kernel
from meshcast.workload import BACKWARD_VECTOR_FLOPS, Attention, AttentionLibrary

# A call that takes longer after a pause than in a row, when the clock is lower if anything, waits for the host.
HOST_BOUND = 1.03
_PRODUCTS = {"bf16": "bf16", "e4m3-fast": "f8E4M3FN", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}
_LIBRARIES: dict[str, AttentionLibrary] = {"cudnn": "cudnn", "flash2": "flash-2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A library's kernel with seconds of short runs (`burst`) and of runs without a pause (`sustained`)."""

    id: str
    group: str  # what it is and by which library or in which type, e.g. `attention cudnn`
    kernel: Kernel
    burst: float
    sustained: float


def read_calls(path: Path) -> list[Call]:
    """The calls of a file that the host does not hold up."""
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return [call for row in rows for call in read_row(row) if call.burst <= HOST_BOUND * call.sustained]


def read_row(row: Mapping[str, Any]) -> Iterator[Call]:
    """The calls of one measured line, those that wait for the host among them; none for lines of other kinds."""
    if row["what"] == "product":
        size = row["m"], row["n"], row["k"]
        for name, dtype in _PRODUCTS.items():
            yield _call(
                f"{name}-{'x'.join(map(str, size))}", f"product {name}", product_kernel(*size, dtype), row[name]
            )
    elif row["what"] == "attention":
        for name, library in _LIBRARIES.items():
            shape = Attention(
                batch=row["batch"], heads=row["heads"], kv_heads=row["kv_heads"], q_len=row["length"],
                kv_len=row["length"], head_dim=row["width"], dtype="bf16", causal=row["causal"], backward=False,
                library=library,
            )  # fmt: skip
            words = "-".join(str(row[key]) for key in ("batch", "heads", "kv_heads", "length", "width", "causal"))
            forward = attention_kernel(shape)
            for what, kernel in (("forward", forward), ("backward", backward_kernel(forward, shape))):
                yield _call(f"{name}-{what}-{words}", f"attention {name}", kernel, row[f"{name}-{what}"])


def _call(name: str, group: str, kernel: Kernel, times: Mapping[str, float]) -> Call:
    return Call(
        id=name, group=group, kernel=kernel, burst=times["burst_ms"] * 1e-3, sustained=times["sustained_ms"] * 1e-3
    )


def backward_kernel(forward: Kernel, shape: Attention) -> Kernel:
    """The backward pass of an attention call: five products for two, queries, result and gradient read, three gradients."""
    query, key, value = forward.operand_bytes
    statistics = shape.batch * shape.heads * shape.q_len * 4
    return replace(
        forward,
        geometry=replace(shape, backward=True),
        matrix_flops=2.5 * forward.matrix_flops,
        vector_flops=BACKWARD_VECTOR_FLOPS * forward.transcendentals,
        read_bytes=3 * query + key + value + statistics,
        written_bytes=query + key + value,
        operand_bytes=(query, key, value, query, query, statistics),
    )
