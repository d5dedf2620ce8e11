"""The silicon tables as typed columns, one class an op: products, attention calls, collectives."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError, UnsupportedError
from meshcast.estimate.measurements.silicon import Floats, Integers, SiliconTable, Texts, table

# The package's names of operand types, and MLIR's. What is not here (weights alone quantised, scales per block, nvfp4) is no
# product that StableHLO can say.
PRODUCT_DTYPES = {"bfloat16": "bf16", "float16": "f16", "fp8": "f8E4M3FN"}
ATTENTION_DTYPES = {"bfloat16": "bf16", "float16": "f16", "fp8": "f8E4M3FN"}
NCCL_DTYPES = {"half": ("f16", 2), "int8": ("i8", 1)}
COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
# Share of a row's latency that the quantisation of its operand may take: beyond it what is left says little about the
# product, as the two were measured apart.
MOST_QUANTISATION = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The framework whose kernels a table times, its version, and the table's file."""

    framework: str
    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.framework} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """`m x k` by `k x n` with `k` innermost in both; operands of `dtype`, results in bf16 (f16 for f16)."""

    source: Measured
    m: Integers
    n: Integers
    k: Integers
    dtype: Texts
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Attentions:
    """Fused attention, causal: `context` calls have as many queries as keys, `generation` calls a single one."""

    source: Measured
    phase: Literal["context", "generation"]
    batch: Integers
    heads: Integers
    kv_heads: Integers
    q_len: Integers
    kv_len: Integers
    head_dim: Integers
    dtype: Texts
    kernel: Texts  # the framework's name of what ran
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """NCCL as nccl-tests runs it inside one node: `bytes` is that tool's size, the larger of a rank's two buffers."""

    source: Measured
    kind: Texts
    dtype: Texts
    devices: Integers
    bytes: Integers
    seconds: Floats


Columns = TypeVar("Columns", Products, Attentions, Collectives)


def product_table(
    device: str, framework: str = "trtllm", root: Path | None = None, *, most_quantisation: float = MOST_QUANTISATION
) -> Products:
    """Matrix products; the quantisation of fp8 operands is taken away.

    Args:
        device: A device of the catalogue.
        framework: `trtllm`, `vllm` or `sglang`.
        most_quantisation: The share of its latency that a row's quantisation may take.
        root: The folder of all systems; the installed package's by default.

    Raises:
        UnsupportedError: there is no such table.
        InputError: a table cannot be read.
    """
    found = _needed(device, "gemm", "gemm_perf", framework, root)
    kinds = found.texts("gemm_dtype")
    rows = Products(
        source=_source(found),
        m=found.integers("m"),
        n=found.integers("n"),
        k=found.integers("k"),
        dtype=_renamed(kinds, {name: name for name in PRODUCT_DTYPES}),
        seconds=found.seconds(),
    )
    rows = _only(rows, (rows.dtype != "") & (rows.seconds > 0))
    quantised = rows.dtype == "fp8"
    if quantised.any():
        spent = _quantisation(rows, device, framework, root)
        left = np.where(quantised, rows.seconds - spent, rows.seconds)
        rows = _only(replace(rows, seconds=left), (left > 0) & (left >= (1 - most_quantisation) * rows.seconds))
    return replace(rows, dtype=_renamed(rows.dtype, PRODUCT_DTYPES))


def _quantisation(rows: Products, device: str, framework: str, root: Path | None) -> Floats:
    """Seconds to quantise `m x k` operands: those of the nearest measured sizes, which are as many as the products'."""
    spent = np.zeros(len(rows.m))
    for name in ("computescale_perf", "scale_matrix_perf"):
        found = _needed(device, "quantize", name, framework, root)
        m, k, seconds = (
            column[found.seconds() > 0] for column in (found.integers("m"), found.integers("k"), found.seconds())
        )
        if not len(m):
            raise InputError("no row with a positive latency", where=str(found.path))
        wanted = np.unique(np.stack([rows.m, rows.k], axis=1), axis=0)
        distance = np.abs(np.log(wanted[:, :1] / m)) + np.abs(np.log(wanted[:, 1:] / k))
        nearest = seconds[distance.argmin(axis=1)]
        place = {(int(a), int(b)): float(s) for (a, b), s in zip(wanted, nearest, strict=True)}
        spent += np.array([place[int(a), int(b)] for a, b in zip(rows.m, rows.k, strict=True)])
    return spent


def attention_table(
    device: str,
    phase: Literal["context", "generation"],
    framework: str = "sglang",
    root: Path | None = None,
) -> Attentions:
    """Attention without windows, beams and mixed types; no rows of Triton kernels, which stand in for others.

    Args:
        device: A device of the catalogue.
        phase: `context` or `generation`.
        framework: `trtllm`, `vllm` or `sglang`.
        root: The folder of all systems; the installed package's by default.

    Raises:
        UnsupportedError: there is no such table.
        InputError: a table cannot be read.
    """
    found = _needed(device, "attention", f"{phase}_attention_perf", framework, root)
    length, past = found.integers("isl"), found.integers("step")
    rows = Attentions(
        source=_source(found),
        phase=phase,
        batch=found.integers("batch_size"),
        heads=found.integers("num_heads"),
        kv_heads=found.integers("num_key_value_heads"),
        q_len=length,
        kv_len=length + past,  # of a generation call `isl` is 1, the new token, and `step` the ones before it
        head_dim=found.integers("head_dim"),
        dtype=_renamed(found.texts("attn_dtype"), ATTENTION_DTYPES),
        kernel=found.texts("kernel_source"),
        seconds=found.seconds(),
    )
    plain = (found.integers("window_size", default=0) == 0) & (found.integers("beam_width", default=1) == 1)
    same_type = rows.dtype == _renamed(found.texts("kv_cache_dtype"), ATTENTION_DTYPES)
    grouped = (rows.kv_heads > 0) & (rows.heads % np.maximum(1, rows.kv_heads) == 0)
    flash = np.char.find(rows.kernel, "triton") < 0
    return _only(rows, plain & same_type & grouped & flash & (rows.dtype != "") & (rows.seconds > 0))


def collectives(device: str, root: Path | None = None) -> Collectives:
    """NCCL's collectives inside one node.

    Args:
        device: A device of the catalogue.
        root: The folder of all systems; the installed package's by default.

    Raises:
        UnsupportedError: there is no such table.
        InputError: a table cannot be read.
    """
    found = _needed(device, "comm", "nccl_perf", "nccl", root)
    names = found.texts("nccl_dtype")
    width = np.array([NCCL_DTYPES.get(str(name), ("", 0))[1] for name in names], dtype=np.int64)
    rows = Collectives(
        source=_source(found),
        kind=_renamed(found.texts("op_name"), COLLECTIVES),
        dtype=_renamed(names, {name: dtype for name, (dtype, _) in NCCL_DTYPES.items()}),
        devices=found.integers("num_gpus"),
        bytes=found.integers("message_size") * width,  # sizes are in elements
        seconds=found.seconds(),
    )
    return _only(rows, (rows.kind != "") & (rows.dtype != "") & (rows.seconds > 0))


def _needed(device: str, family: str, name: str, framework: str, root: Path | None) -> SiliconTable:
    found = table(device, family, name, framework, root)
    if found is None:
        raise UnsupportedError(
            f"no silicon table {family}/{framework}/*/{name} of {device}", fix="choose another framework or device"
        )
    return found


def _source(found: SiliconTable) -> Measured:
    return Measured(framework=found.framework, version=found.version, path=found.path)


def _renamed(names: Texts, known: dict[str, str]) -> Texts:
    """Names by a dictionary; empty where it has none."""
    unique, place = np.unique(names, return_inverse=True)
    return np.array([known.get(str(name), "") for name in unique], dtype=np.str_)[place]


def _only(rows: Columns, keep: npt.NDArray[np.bool_]) -> Columns:
    """Some of the rows."""
    columns: dict[str, Any] = {
        field.name: value[keep] for field in fields(rows) if isinstance(value := getattr(rows, field.name), np.ndarray)
    }
    return replace(rows, **columns)
