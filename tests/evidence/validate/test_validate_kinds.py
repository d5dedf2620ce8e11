"""Kernels by kind beside what was measured: names without numbers where both sides have them, classes elsewhere."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast.base import UsageError
from meshcast.cli.validate import app
from meshcast.evidence.validate import kinds
from tests.documentation.pages import ROOT

HLO = """HloModule m, is_scheduled=true

%fused (p: f32[4096,4096]) -> f32[4096,4096] {
  %p = f32[4096,4096]{1,0} parameter(0)
  ROOT %n = f32[4096,4096]{1,0} negate(%p)
}

ENTRY %main {
  %a = f32[4096,4096]{1,0} parameter(0)
  %b = bf16[4096,4096]{1,0} parameter(1)
  %loop_negate_fusion.3 = f32[4096,4096]{1,0} fusion(%a), kind=kLoop, calls=%fused
  %loop_negate_fusion.4 = f32[4096,4096]{1,0} fusion(%loop_negate_fusion.3), kind=kLoop, calls=%fused
  %custom-call.1 = (bf16[4096,4096]{1,0}, s8[4096]{0}) custom-call(%b, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":1,"epilogue":"DEFAULT","dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %c = bf16[4096,4096]{1,0} get-tuple-element(%custom-call.1), index=0
  ROOT %out = (f32[4096,4096]{1,0}, bf16[4096,4096]{1,0}) tuple(%loop_negate_fusion.4, %c)
}
"""  # noqa: E501
# Inside a graph, where fusions are numbered otherwise and a library's kernel has a name of its own.
LAUNCHES = [
    {"hlo_op": "command_buffer_1", "kernel": "loop_negate_fusion_8", "count": 1.0, "us": 100.0},
    {"hlo_op": "command_buffer_1", "kernel": "loop_negate_fusion", "count": 1.0, "us": 100.0},
    {"hlo_op": "command_buffer_1", "kernel": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "count": 1.0, "us": 200.0},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "step.opt.hlo.gz").write_bytes(gzip.compress(HLO.encode()))
    (tmp_path / "programs" / "step.mlir").write_text("not asked for where the optimised HLO was kept")
    (tmp_path / "programs" / "bare.mlir").write_text("no kernels of it were measured")
    rows = [
        {"id": "step", "group": "llm", "busy_us": 500.0, "wall_us": 510.0, "kernels": LAUNCHES},
        {"id": "bare", "group": "llm", "busy_us": 500.0, "wall_us": 510.0},
    ]
    (tmp_path / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    result = CliRunner().invoke(
        app, ["programs", str(folder), "--kinds", "--fidelity", "roofline", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.stdout


def test_fusions_go_by_their_names_and_calls_of_libraries_by_class(folder: Path) -> None:
    step, bare, summary = (json.loads(line) for line in run(folder, "--json").splitlines())
    assert set(step["kinds"]) == {"element-wise: loop_negate_fusion", "matmul", "copy"}  # a memset before the product
    loops = step["kinds"]["element-wise: loop_negate_fusion"]
    assert loops["measured"] == pytest.approx(0.5)
    assert loops["measured_launches"] == loops["predicted_launches"] == 2
    # Two passes over 64 MiB and back at 4.8 TB/s, of 400 us of measured kernels.
    assert loops["predicted"] == pytest.approx(2 * 2 * 4 * 4096**2 / 4.8e12 * 1e6 / 400, rel=0.01)
    assert step["kinds"]["matmul"]["measured"] == pytest.approx(0.5)
    assert step["kinds"]["matmul"]["predicted"] == pytest.approx(2 * 4096**3 / 989.5e12 * 1e6 / 400, rel=0.02)
    assert step["seen"] == pytest.approx(0.8)
    assert bare["why"] == "unmeasured: no kernels"
    assert (summary["rows"], summary["failed"]) == (2, 1)
    assert set(summary) == {"schema", "rows", "failed", "kinds"}
    assert summary["schema"] == "meshcast.validation-kinds/1"
    page = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    named = page.partition("`meshcast.validation-kinds/1`")[2]
    assert named
    assert {name for name in summary["kinds"]["matmul"] if f"`{name}`" not in page} == set()
    # The kind that is off by most comes first.
    assert next(iter(summary["kinds"])) == "element-wise: loop_negate_fusion"


def test_the_table_says_what_it_leaves_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "more kinds" not in run(folder)
    monkeypatch.setattr(kinds, "SHOWN", 1)
    lines = run(folder).splitlines()
    assert "2 more kinds are off by less; --json has them" in lines
    assert "kinds of kernel, in shares of a program" in lines[0]
    assert any(line.startswith("1 programs; their measured kernels are 80%") for line in lines)
    assert "bare: unmeasured: no kernels" in lines


@pytest.mark.parametrize("more", [["--halves"], ["--markdown", "page.md"]])
def test_what_kinds_of_kernel_have_not_is_refused(folder: Path, more: list[str]) -> None:
    wrong = CliRunner().invoke(app, ["programs", str(folder), "--kinds", *more])
    assert isinstance(wrong.exception, UsageError)
    assert wrong.exception.fix == f"leave {more[0]} out"
    assert not Path("page.md").exists()
