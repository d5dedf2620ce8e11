"""Programs of measured ops: what they compute and move, by hand, and that every kind of row has one.

`fixtures/tpu_ops.csv` has a row or a few of every chip, op, grade and method of published measurements; its column `source`
says whose each of them is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from meshcast.base.errors import MeshcastError, UnsupportedError
from meshcast.evidence.validate.ops.programs import family, op_program
from meshcast.evidence.validate.ops.rows import OpRow, read_op_rows
from meshcast.lower import Kernel, KernelKind, lower
from meshcast.programs.files import from_bytes
from meshcast.workload import Workload, read_workload
from meshcast.workload.graph import Attention

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tpu_ops.csv"
ROWS = read_op_rows(FIXTURE)
UNSAID = {"llama_ffn_3x"}  # bytes without dimensions


def workload_of(row: OpRow) -> Workload:
    return read_workload(from_bytes(op_program(row).text.encode(), name=row.op, where=row.id))


def matrix_flops(row: OpRow) -> float:
    return sum(workload_of(row).totals.matrix_flops.values())


def kernels_of(row: OpRow) -> list[tuple[Kernel, int]]:
    return list(lower(workload_of(row), backend="xla-tpu").schedule.walk())


def op(op: str, notes: str = "", dtype: str = "bf16", chip: str = "v6e", **shape: object) -> OpRow:
    return OpRow(
        id="row", chip=chip, op=op, dtype=dtype, shape={k: str(v) for k, v in shape.items()}, time_us=1.0, notes=notes
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.id}-{row.op}")
def test_every_row_is_a_program_or_says_why_not(row: OpRow) -> None:
    if row.op in UNSAID:
        with pytest.raises(UnsupportedError):
            op_program(row)
        return
    workload = workload_of(row)
    assert workload.devices == int(row.shape.get("devices", 1))


def test_a_product_alone_in_a_chain_and_with_an_epilogue() -> None:
    alone = op("matmul", M=64, N=256, K=128)
    assert matrix_flops(alone) == 2 * 64 * 256 * 128
    chained = op("matmul", "slope of chained lax.scan (chain 16 vs 32)", M=64, N=256, K=128)
    assert op_program(chained).steps == 32
    assert op_program(chained).slope
    assert matrix_flops(chained) == 32 * 2 * 64 * 256 * 128
    fed = op("matmul", "chain 8 wall/8", M=64, N=128, K=128)
    assert not op_program(fed).slope
    assert "reduce" not in op_program(fed).text
    behind = op("matmul", "XProf (class down, 96 occurrences); norm/activation epilogues fused in", M=8, N=16, K=32)
    assert "stablehlo.add" in op_program(behind).text
    gate = op("matmul", "XProf (class gate_up, 72 occurrences); epilogues fused in", M=8, N=16, K=32)
    assert "stablehlo.logistic" in op_program(gate).text


def test_a_chain_is_a_loop_that_carries_the_whole_result() -> None:
    row = op("add", "device slope of chained scan (chain 128)", elements=4096)
    counted = {kernel.elements: count for kernel, count in kernels_of(row)}
    assert counted[4096] == 128
    assert "abs" in op_program(op("exponential", "slope (chain 4)", elements=8)).text
    assert "abs" not in op_program(op("exponential", elements=8)).text


def test_bytes_that_streams_and_reads_move() -> None:
    for name, arrays in (("copy", 2), ("copy_scale", 2), ("triad", 3)):
        moved = sum(k.read_bytes + k.written_bytes for k, _ in kernels_of(op(name, bytes=2**20)))
        assert moved == arrays * 2**20
    read = kernels_of(op("reduce_read", elements=2**20))
    assert max(k.read_bytes for k, _ in read) == 2**21
    cache = op("reduce_read", "wall median of chain 8 / 8", B=2, S=64, q_heads=4, kv_heads=2, head_dim=128, page=16)
    large = [size * count for kernel, count in kernels_of(cache) for size in kernel.operand_bytes if size > 1000]
    assert sum(large) == 8 * 2 * (2 * 64 * 2 * 128 * 2)
    prefetch = op("copy_hbm_to_cmem", dtype="f16", layout="f16[512x512]", bytes=524288)
    assert [k.read_bytes + k.written_bytes for k, _ in kernels_of(prefetch)] == [524288]


def test_a_layer_norm_gives_f32_as_its_source_does() -> None:
    text = op_program(op("layer_norm", dtype="f16", chip="v4(inferred)", dims="2x128x512")).text
    assert "-> (tensor<2x128x512xf32>)" in text
    assert "-> (tensor<64xf32>)" in op_program(op("binary_step", dtype="f16", chip="v4", elements=64)).text


@pytest.mark.parametrize("row", [row for row in ROWS if row.op == "attention_prefill_flash"], ids=lambda row: row.text)
def test_flash_attention_declares_what_its_source_counted(row: OpRow) -> None:
    said = re.search(r"flops actually done=(\d+); kernel hbm bytes=(\d+)", row.notes)
    assert said is not None
    declared = re.search(r'meshcast\.cost = "(\{.*?\})"', op_program(row).text)
    assert declared is not None
    work = json.loads(declared[1].replace("\\22", '"'))
    assert (work["flops"], work["bytes"]) == (int(said[1]), int(said[2]))


def test_attention_calls_have_their_geometry() -> None:
    sizes: dict[str, Any] = {"B": 2, "S": 512, "q_heads": 32, "kv_heads": 8, "head_dim": 128}
    for name, queries, causal in (
        ("attention_decode_paged", 1, False),
        ("attention_decode_rpa_bucket", 1, False),
        ("attention_prefill_rpa_bucket", 512, True),
    ):
        (kernel,) = [k for k, _ in kernels_of(op(name, **sizes)) if k.kind is KernelKind.ATTENTION]
        shape = kernel.geometry
        assert isinstance(shape, Attention)
        assert (shape.batch, shape.heads, shape.kv_heads, shape.q_len, shape.kv_len) == (2, 32, 8, queries, 512)
        assert shape.causal is causal
        pairs = 512 * 513 // 2 if causal else 512
        assert kernel.matrix_flops == 4 * 2 * 32 * 128 * pairs
    halved = op("attention_prefill_rpa_bucket", "bucket averaged over 2 programs of half the batch", **sizes)
    (kernel,) = [k for k, _ in kernels_of(halved) if k.kind is KernelKind.ATTENTION]
    assert isinstance(kernel.geometry, Attention)
    assert kernel.geometry.batch == 1


def test_dense_attention_is_two_products() -> None:
    row = op("attention_decode_dense_xla", "chain 8 / 8", B=2, S=64, q_heads=8, kv_heads=2, head_dim=32)
    assert matrix_flops(row) == 8 * 4 * 2 * 8 * 64 * 32


def test_collectives_and_sharded_products() -> None:
    for name, sent in (("all_reduce", 4096), ("all_gather", 4096), ("all_to_all", 4096), ("collective_permute", 4096)):
        (kernel,) = [k for k, _ in kernels_of(op(name, devices=4, bytes=4096)) if k.collective]
        assert kernel.collective is not None
        assert (kernel.collective.kind, kernel.collective.input_bytes) == (name, sent)
        assert kernel.collective.group.size == 4
    whole = op("matmul_replicated", chip="v5e", devices=8, M=64, N=64, K=64)
    assert matrix_flops(whole) == 2 * 64**3
    for name in ("matmul_sharded_rowcol", "matmul_sharded_colrow"):
        part = op(name, chip="v5e", devices=8, M=64, N=64, K=64)
        assert matrix_flops(part) == 2 * 64**3 / 8
        assert sum(k.collective is not None for k, _ in kernels_of(part)) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (op("fft", elements=8), "no program is known for op 'fft'"),
        (op("add", dtype="f128", elements=8), "no element type"),
        (op("add"), "has no elements"),
        (op("matmul", M=8, N=8), "has no K"),
        (op("matmul", M=8, N=8, K="x"), "K='x'"),
        (op("gather", B=1, S=17, kv_heads=1, head_dim=8, page=16), "pages of 16"),
        (op("attention_prefill_flash", B=1, S=500, q_heads=1, kv_heads=1, head_dim=128), "blocks"),
        (op("convolution", N=1, C=1, H=2, W=2, K=1, R=3, S=3), "does not fit"),
        (op("all_reduce", devices=1, bytes=8), "two devices"),
        (op("all_to_all", devices=4, bytes=2), "no element"),
        (op("all_reduce", devices=2**21, bytes=2**26), "no network"),
        (op("matmul_sharded_rowcol", devices=3, M=8, N=8, K=8), "does not divide"),
    ],
    ids=lambda value: value.op if isinstance(value, OpRow) else "",
)
def test_rows_without_a_program_say_why(row: OpRow, message: str) -> None:
    with pytest.raises(MeshcastError, match=re.escape(message)):
        op_program(row)


def test_families() -> None:
    names = ("matmul", "tanh", "layer_norm", "reduce_read", "copy", "attention_decode_paged", "all_reduce")
    expected = ["product", "elementwise", "normalisation", "reduction", "movement", "attention", "communication"]
    assert [family(name) for name in names] == expected
