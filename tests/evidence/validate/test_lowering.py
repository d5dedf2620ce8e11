"""Our kernels against a compiled program's: counts, bytes and classes of texts that can be counted by hand."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast.cli.validate import app
from meshcast.estimate.measurements.programs import read_measured_programs
from meshcast.evidence.validate.lowering import (
    WAYS,
    LoweringRow,
    LoweringSummary,
    LoweringWay,
    is_apart,
    lowering_grids,
    validate_lowering,
)
from meshcast.evidence.validate.programs import Pair
from meshcast.hardware import load_device

PROGRAM = """
module @m {
  func.func public @main(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %t = stablehlo.tanh %p : tensor<64x64xf32>
    return %t : tensor<64x64xf32>
  }
}
"""
COMPILED = """HloModule m, is_scheduled=true, entry_computation_layout={(f32[64,64]{1,0}, f32[64,64]{1,0}, f32[12,64,64]{2,1,0})->f32[64,64]{1,0}}

%fused_slice (param_0: f32[12,64,64], param_1: s32[]) -> f32[1,64,64] {
  %param_0 = f32[12,64,64]{2,1,0} parameter(0)
  %param_1 = s32[] parameter(1)
  %c = s32[] constant(0)
  ROOT %ds = f32[1,64,64]{2,1,0} dynamic-slice(%param_0, %param_1, %c, %c), dynamic_slice_sizes={1,64,64}
}

%fused_tanh (param_0.1: f32[64,64]) -> f32[64,64] {
  %param_0.1 = f32[64,64]{1,0} parameter(0)
  ROOT %tanh = f32[64,64]{1,0} tanh(%param_0.1)
}

%body (arg: (s32[], f32[12,64,64], f32[1,64,64])) -> (s32[], f32[12,64,64], f32[1,64,64]) {
  %arg = (s32[], f32[12,64,64]{2,1,0}, f32[1,64,64]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %w = f32[12,64,64]{2,1,0} get-tuple-element(%arg), index=1
  %slice = f32[1,64,64]{2,1,0} fusion(%w, %i), kind=kLoop, calls=%fused_slice
  ROOT %out = (s32[], f32[12,64,64]{2,1,0}, f32[1,64,64]{2,1,0}) tuple(%i, %w, %slice)
}

%condition (arg.1: (s32[], f32[12,64,64], f32[1,64,64])) -> pred[] {
  %arg.1 = (s32[], f32[12,64,64]{2,1,0}, f32[1,64,64]{2,1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%arg.1), index=0
  %n = s32[] constant(12)
  ROOT %lt = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %main (a: f32[64,64], b: f32[64,64], stack: f32[12,64,64]) -> f32[64,64] {
  %a = f32[64,64]{1,0} parameter(0)
  %b = f32[64,64]{1,0} parameter(1)
  %stack = f32[12,64,64]{2,1,0} parameter(2)
  %zero = s32[] constant(0)
  %first = f32[1,64,64]{2,1,0} bitcast(%a)
  %s = (s32[], f32[12,64,64]{2,1,0}, f32[1,64,64]{2,1,0}) tuple(%zero, %stack, %first)
  %w.1 = (s32[], f32[12,64,64]{2,1,0}, f32[1,64,64]{2,1,0}) while(%s), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"12"}}
  %last = f32[1,64,64]{2,1,0} get-tuple-element(%w.1), index=2
  %l = f32[64,64]{1,0} bitcast(%last)
  %g = (f32[64,64]{1,0}, s8[4194304]{0}) custom-call(%l, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  %r = f32[64,64]{1,0} get-tuple-element(%g), index=0
  ROOT %t = f32[64,64]{1,0} fusion(%r), kind=kLoop, calls=%fused_tanh
}
"""  # noqa: E501
SQUARE = 64 * 64 * 4
INDEX = 8  # both offsets of the slice, though one is always zero
H200 = load_device("h200")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "net.mlir").write_text(PROGRAM)
    (tmp_path / "programs" / "net.opt.hlo.gz").write_bytes(gzip.compress(COMPILED.encode()))
    kernels = [
        {"hlo_op": "g", "kernel": "nvjet", "count": 1.0, "us": 1.0},
        {"hlo_op": "t", "kernel": "t", "count": 1.0},
    ]
    row = {"id": "net", "group": "mlp", "wall_us": 5.0, "busy_us": 4.0, "kernels": kernels}
    (tmp_path / "measurements.jsonl").write_text(json.dumps(row) + "\n")
    return tmp_path


def test_a_row_compares_launches_with_the_profiler_and_bytes_with_the_hlo(folder: Path) -> None:
    (row,) = validate_lowering(read_measured_programs(folder), H200)
    kernels, moved = row.modelled.kernels, row.modelled.bytes
    assert kernels is not None
    assert moved is not None
    assert (kernels.predicted, kernels.measured) == (2, 2)
    assert moved.predicted == 5 * SQUARE
    assert moved.measured == 5 * SQUARE + 12 * (2 * SQUARE + INDEX)
    assert row.classes["gemm"] == (1, 1, 3 * SQUARE, 3 * SQUARE)


def test_library_calls_stand_beside_those_of_the_hlo(folder: Path) -> None:
    (program,) = read_measured_programs(folder)
    (row,) = validate_lowering([program], H200)
    assert row.calls == {"cuBLAS": (0, 1), "Triton": (1, 0)}  # timed, so small a product would be Triton's
    (row,) = validate_lowering([replace(program, tuned=False)], H200)
    assert row.calls == {"cuBLAS": (1, 1)}
    assert row.to_json()["library_calls"] == {"cuBLAS": {"compiled": 1, "predicted": 1}}
    summary = LoweringSummary(rows=(row, row))
    assert summary.to_json()["library_calls"] == {"cuBLAS": {"compiled": 2, "predicted": 2}}
    (grid, *_) = lowering_grids(summary)
    assert "cuBLAS 1/1" in grid.rows[0]
    assert "cuBLAS 2/2" in grid.rows[-1]


def test_the_summary_is_a_geomean_and_a_share(folder: Path) -> None:
    summary = LoweringSummary(rows=tuple(validate_lowering(read_measured_programs(folder), H200)))
    assert summary.geomean_error("kernels") == pytest.approx(0)
    assert summary.share_within("kernels") == 1.0
    assert summary.share_within("bytes") == 0.0


def test_a_program_that_cannot_be_read_is_a_row_with_a_reason(folder: Path) -> None:
    (folder / "programs" / "net.mlir").write_text("nonsense")
    (row,) = validate_lowering(read_measured_programs(folder), H200)
    assert row.modelled.kernels is None
    assert row.modelled.why
    assert row.ways["given"].kernels is not None


def test_the_given_way_reads_the_hlo_itself(folder: Path) -> None:
    (row,) = validate_lowering(read_measured_programs(folder), H200)
    given = row.ways["given"]
    assert given.kernels is not None
    assert given.kernels.predicted == 14
    assert given.bytes is not None
    assert given.bytes.error == 0
    (folder / "programs" / "net.opt.hlo.gz").unlink()
    (row,) = validate_lowering(read_measured_programs(folder), H200)
    assert row.ways["given"].why == "there is no optimized HLO of it"


def test_a_damaged_hlo_is_that_ways_reason_and_stops_nothing(folder: Path) -> None:
    packed = folder / "programs" / "net.opt.hlo.gz"
    packed.write_bytes(packed.read_bytes()[:40])
    (row,) = validate_lowering(read_measured_programs(folder), H200)
    assert "cut off or damaged" in (row.ways["given"].why or "")
    assert row.modelled.kernels is not None


def test_the_command_prints_a_table_and_json(folder: Path) -> None:
    table = CliRunner().invoke(app, ["lowering", str(folder), "--on", "h200"])
    assert table.exit_code == 0, table.output
    assert "geomean error" in table.output
    lines = CliRunner().invoke(app, ["lowering", str(folder), "--json"]).output.splitlines()
    assert json.loads(lines[0])["kernels"] == {"measured": 2.0, "predicted": 2}
    assert json.loads(lines[-1])["kind"] == "lowering"


def test_libraries_set_apart_are_told_by_their_names_hash() -> None:
    rows = tuple(
        LoweringRow(
            id=name,
            group="misc",
            library=name,
            ways={
                way: LoweringWay(kernels=Pair(predicted=10, measured=8), memory=Pair(predicted=3, measured=3))
                for way in WAYS
            },
        )
        for name in ("optax", "jraph")
    )
    summary = LoweringSummary(rows=rows)
    assert [is_apart(name) for name in summary.by_library()] == [False, True]
    told = summary.to_json()["libraries"]
    assert told["optax"]["apart"]
    assert told["jraph"]["kernels"] == pytest.approx(0.25)
    assert told["jraph"]["memory"] == 0.0
    (grid,) = [grid for grid in lowering_grids(summary) if "library" in grid.header]
    assert [row[0] for row in grid.rows] == ["jraph", "optax", "all open", "all set apart"]


def test_a_captured_folder_without_measurements_is_read(tmp_path: Path) -> None:
    (tmp_path / "index.jsonl").write_text('{"id": "one", "group": "misc", "library": "jraph"}\n')
    (program,) = read_measured_programs(tmp_path)
    assert (program.library, program.kernel_count, program.launches) == ("jraph", None, ())
