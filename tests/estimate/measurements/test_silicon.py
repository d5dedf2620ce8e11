"""The reader of silicon tables: units, versions, what is left out, and kernels that our own lowering would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast.base import how_to_install
from meshcast.base.errors import InputError, UnsupportedError
from meshcast.estimate.measurements import silicon
from meshcast.estimate.measurements.silicon import SYSTEMS, SiliconTable, installed, system_folder, table
from meshcast.estimate.measurements.silicon_kernels import (
    attention_kernels,
    product_kernel,
    product_kernels,
    weight_copies,
)
from meshcast.estimate.measurements.silicon_tables import attention_table, collectives, product_table
from meshcast.hardware import device_names, load_device
from meshcast.lower import KernelKind, lower
from meshcast.partition import partition
from meshcast.programs.files import from_bytes
from meshcast.workload import read_workload
from meshcast.workload.graph import Attention
from tests.estimate.measurements.silicon_layout import ATTENTION, GEMM, NCCL, QUANTISE, attention_row, gemm_row, write

H200 = load_device("h200")
MIB = 2**20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Tables of an H200; the newest version of the products says that it repeats the one before it."""
    system = tmp_path / "h200_sxm"
    gemm = system / "gemm" / "trtllm"
    write(gemm / "1.3.0rc5" / "gemm_perf.txt", GEMM, [gemm_row("bfloat16", 1, 1, 1, 99.0)])
    rows = [
        gemm_row("bfloat16", 128, 4096, 4096, 0.0147),
        gemm_row("fp8", 4096, 4096, 4096, 0.11),
        gemm_row("fp8", 8, 4096, 4096, 0.012),  # mostly quantisation
        gemm_row("nvfp4", 8, 4096, 4096, 0.01),
        gemm_row("bfloat16", 1, 1024, 1024, 0.004),  # a vector: XLA sums it up
        gemm_row("bfloat16", 8, 4096, 4096, 0.0),  # failed
    ]
    write(gemm / "1.3.0rc20" / "gemm_perf.txt", GEMM, rows)
    (gemm / "1.3.0rc23").mkdir()
    (gemm / "1.3.0rc23" / "reuse.yaml").write_text("schema_version: 1\n")
    quantise = system / "quantize" / "trtllm" / "1.3.0rc20"
    write(quantise / "computescale_perf.txt", QUANTISE, [("x", 8, 4096, "fp8", 0.007), ("x", 4096, 4096, "fp8", 0.008)])
    write(quantise / "scale_matrix_perf.txt", QUANTISE, [("x", 8, 4096, "fp8", 0.001), ("x", 4096, 4096, "fp8", 0.002)])
    nccl = [("half", 8, 1024, "NCCL", "all_reduce", 0.02), ("int8", 4, 1024, "NCCL", "alltoall", 0.03)]
    write(system / "comm" / "nccl" / "2.29.2" / "nccl_perf.txt", NCCL, nccl)
    context = [
        attention_row(),
        attention_row(window_size=128),
        attention_row(beam_width=4),
        attention_row(kv_cache_dtype="fp8"),
        attention_row(kernel_source="triton"),
        attention_row(attn_dtype="fp8", kv_cache_dtype="fp8"),
    ]
    attention = system / "attention" / "sglang" / "0.5.14"
    write(attention / "context_attention_perf.txt", ATTENTION, context)
    write(attention / "generation_attention_perf.txt", ATTENTION, [attention_row(isl=1, step=4095)])
    return tmp_path


def test_products_are_in_seconds_and_the_newest_that_has_them(root: Path) -> None:
    found = product_table("h200", root=root)
    assert str(found.source) == "trtllm 1.3.0rc20"
    assert next(zip(found.m, found.n, found.k, found.dtype, strict=True)) == (128, 4096, 4096, "bf16")
    assert found.seconds[0] == pytest.approx(14.7e-6)


def test_quantisation_is_taken_away_and_rows_of_little_else_are_left_out(root: Path) -> None:
    found = product_table("h200", root=root)
    f8 = found.dtype == "f8E4M3FN"
    assert found.m[f8].tolist() == [4096]
    assert found.seconds[f8] == pytest.approx([110e-6 - 8e-6 - 2e-6])


def test_how_much_quantisation_a_row_may_hold_can_be_chosen(root: Path) -> None:
    """The small product: 12 us, of which 8 are quantisation."""
    found = product_table("h200", root=root, most_quantisation=0.7)
    assert found.seconds[found.dtype == "f8E4M3FN"] == pytest.approx([100e-6, 4e-6])


def test_types_that_no_program_can_ask_for_and_failed_rows_are_left_out(root: Path) -> None:
    assert sorted(product_table("h200", root=root).dtype.tolist()) == ["bf16", "bf16", "f8E4M3FN"]


def test_message_sizes_are_elements_in_the_file_and_bytes_here(root: Path) -> None:
    found = collectives("h200", root=root)
    assert found.kind.tolist() == ["all_reduce", "all_to_all"]
    assert found.bytes.tolist() == [2048, 1024]
    assert found.dtype.tolist() == ["f16", "i8"]
    assert found.seconds == pytest.approx([20e-6, 30e-6])


def test_attention_is_plain_attention_alone(root: Path) -> None:
    found = attention_table("h200", "context", root=root)
    assert found.dtype.tolist() == ["bf16", "f8E4M3FN"]
    assert (found.q_len[0], found.kv_len[0], found.kv_heads[0]) == (1024, 1024, 8)
    decoding = attention_table("h200", "generation", root=root)
    assert (decoding.q_len.tolist(), decoding.kv_len.tolist()) == ([1], [4096])


def test_older_files_without_windows_are_read(root: Path) -> None:
    header = [name for name in ATTENTION if name != "window_size"]
    row = [value for name, value in zip(ATTENTION, attention_row(), strict=True) if name != "window_size"]
    path = root / "a100_sxm" / "attention" / "sglang" / "0.5.10" / "context_attention_perf.csv"
    write(path, header, [row])
    assert attention_table("a100-sxm-80gb", "context", root=root).batch.tolist() == [8]


@pytest.mark.parametrize("dtype", ["bf16", "f8E4M3FN"])
def test_a_product_is_the_kernel_that_our_lowering_makes(dtype: str) -> None:
    text = f"""module @p {{ func.func public @main(%x: tensor<128x512x{dtype}>, %w: tensor<256x512x{dtype}>)
        -> tensor<128x256xbf16> {{
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
        : (tensor<128x512x{dtype}>, tensor<256x512x{dtype}>) -> tensor<128x256xbf16>
      return %0 : tensor<128x256xbf16> }} }}"""
    workload = read_workload(partition(from_bytes(text.encode(), name="p", where="test")))
    (lowered,) = [kernel for kernel, _ in lower(workload, backend="xla-gpu").schedule.walk()]
    assert product_kernel(128, 256, 512, dtype).cost_key == lowered.cost_key


def test_an_attention_kernel_counts_half_of_the_scores_under_a_causal_mask(root: Path) -> None:
    (first, _) = attention_kernels(attention_table("h200", "context", root=root))
    kernel = first.kernel
    scores = 8 * 32 * (1024 * 1025 // 2)
    assert kernel.kind is KernelKind.ATTENTION
    assert isinstance(kernel.geometry, Attention)
    assert (kernel.matrix_flops, kernel.transcendentals) == (4 * 128 * scores, scores)
    assert kernel.read_bytes == 2 * 8 * 1024 * 128 * (32 + 2 * 8)


def test_weights_that_take_turns_grow_old(root: Path) -> None:
    """4096 x 4096 in bf16 is 32 MiB, of which two copies exceed the H200's 60 MiB of L2; in f8 it takes four.

    The vector's product, which XLA sums up, is not among them.
    """
    calls = list(product_kernels(H200, product_table("h200", root=root)))
    recencies = [c.kernel.recency for c in calls]
    assert [c.calls for c in calls] == [24, 48]
    assert [r.reads[1] for r in recencies if r is not None] == [(32 * MIB, 32 * MIB), (48 * MIB, 16 * MIB)]
    assert calls[0].run_seconds == pytest.approx(24 * 14.7e-6)
    assert weight_copies("trtllm", 4 * MIB, 60 * MIB) == 5  # 20 MiB in all, which stay
    assert weight_copies("vllm", 2**30, 60 * MIB) == 6


def test_versions_are_sorted_by_their_numbers() -> None:
    names = ["1.3.0", "0.5.14", "1.3.0rc20", "0.5.6.post2", "1.3.0rc5"]
    assert sorted(names, key=silicon._version) == ["0.5.6.post2", "0.5.14", "1.3.0rc5", "1.3.0rc20", "1.3.0"]


def test_every_system_is_a_device_of_the_catalogue() -> None:
    assert set(SYSTEMS) <= set(device_names())


def test_unknown_devices_and_tables_are_named(root: Path) -> None:
    with pytest.raises(UnsupportedError, match="no silicon tables of 'tpu-v4'"):
        system_folder("tpu-v4", root)
    with pytest.raises(UnsupportedError, match="no folder"):
        product_table("b200", root=root)
    with pytest.raises(UnsupportedError, match="gemm/vllm"):
        product_table("h200", framework="vllm", root=root)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silicon, "DISTRIBUTION", "no-such-distribution")
    assert not installed()
    with pytest.raises(UnsupportedError, match="not installed") as caught:
        product_table("h200")
    assert caught.value.fix == how_to_install("silicon")


def test_broken_tables_are_input_errors(root: Path) -> None:
    path = root / "h200_sxm" / "gemm" / "sglang" / "1.0" / "gemm_perf.csv"
    for text, message in (
        ("", "CSV"),
        ("gemm_dtype,m,n\nbfloat16,1\n", "as many fields"),
        ("gemm_dtype,m,n,k\nbfloat16,1,1,1\n", "no column 'latency'"),
        ("gemm_dtype,m,n,k,latency\nbfloat16,one,1,1,1\n", "'m' is not numeric"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        silicon._read.cache_clear()
        with pytest.raises(InputError, match=message):
            product_table("h200", framework="sglang", root=root)


def test_parquet_is_read_like_csv(root: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from_csv = product_table("h200", root=root)
    path = from_csv.source.path
    found = table("h200", "gemm", "gemm_perf", "trtllm", root)
    assert isinstance(found, SiliconTable)
    columns: dict[str, Any] = {name: found.texts(name) for name in ("gemm_dtype",)} | {
        name: found.integers(name) for name in ("m", "n", "k")
    }
    columns["latency"] = found.seconds() * 1e3
    parquet.write_table(pyarrow.table(columns), path.with_suffix(".parquet"))
    path.unlink()
    read = product_table("h200", root=root)
    assert read.source.path.suffix == ".parquet"
    assert np.allclose(read.seconds, from_csv.seconds)
    path.with_suffix(".parquet").write_bytes(b"not a table")
    silicon._read.cache_clear()
    with pytest.raises(InputError, match="Parquet"):
        product_table("h200", root=root)


@pytest.mark.skipif(not installed(), reason="needs the extra `silicon`")
@pytest.mark.parametrize("device", SYSTEMS)
def test_the_package_itself(device: str) -> None:
    """Every device has its tables, and a large product runs at a quarter of its peak or better, never above it."""
    found = product_table(device)
    bf16 = found.dtype == "bf16"
    rate = (2.0 * found.m * found.n * found.k / found.seconds)[bf16].max()
    peak = load_device(device).matrix_flops["bf16"]
    assert bf16.sum() > 5000
    assert 0.25 * peak < rate < 1.1 * peak
    assert len(attention_table(device, "context").batch) > 1000
    assert attention_table(device, "generation").q_len.max() == 1
    busiest = collectives(device)
    assert busiest.bytes.max() == 2**29
