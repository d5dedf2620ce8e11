"""Small tables in the layout of aiconfigurator-core, as its collectors write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

GEMM = ("framework", "version", "device", "op_name", "kernel_source", "gemm_dtype", "m", "n", "k", "latency")
QUANTISE = ("kernel_source", "m", "k", "quant_dtype", "latency")
NCCL = ("nccl_dtype", "num_gpus", "message_size", "kernel_source", "op_name", "latency")
ATTENTION = (
    "kernel_source", "batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "window_size", "beam_width",
    "attn_dtype", "kv_cache_dtype", "step", "latency",
)  # fmt: skip

Rows = Sequence[Sequence[object]]


def write(path: Path, header: Sequence[str], rows: Rows) -> None:
    """One table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(map(str, line)) for line in (header, *rows)) + "\n")


def gemm_row(dtype: str, m: int, n: int, k: int, milliseconds: float) -> tuple[object, ...]:
    """A row of `gemm_perf`."""
    return ("TRTLLM", "1.0.0", "NVIDIA H200", "gemm", "torch_flow", dtype, m, n, k, milliseconds)


def attention_row(**changed: object) -> tuple[object, ...]:
    """A row of one of the attention tables: 8 sequences of 1024, 32 heads that share 8."""
    row: Mapping[str, object] = {
        "kernel_source": "fa3", "batch_size": 8, "isl": 1024, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "window_size": 0, "beam_width": 1, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "step": 0,
        "latency": 0.25,
    } | changed  # fmt: skip
    return tuple(row[name] for name in ATTENTION)
