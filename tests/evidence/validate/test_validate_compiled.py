"""A fidelity against the compiler's programs: rows, failures, and the command, with programs that were kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast import Options
from meshcast.base.errors import MeshcastError
from meshcast.cli.validate import app
from meshcast.estimate.measurements.programs import read_measured_programs
from meshcast.evidence.validate.compiled import validate_compiled

HLO = Path(__file__).parents[2] / "data" / "tpu-v6e"
DOT = """\
func.func public @main(%a: tensor<1024x1024xbf16>, %b: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
  return %0 : tensor<1024x1024xbf16>
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A product that was compiled and one that was not."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("product", "other"):
        (programs / f"{name}.mlir").write_text(DOT)
    rows = [{"id": name, "group": "mlp", "wall_us": 10.0} for name in ("product", "other")]
    (tmp_path / "measurements.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    shutil.copytree(HLO, tmp_path / "compiled")
    return tmp_path


def test_rows_compare_both_times(folder: Path) -> None:
    options = Options(on="tpu-v6e", fidelity="analytical", levers=False)
    found = list(validate_compiled(read_measured_programs(folder), options, kept=folder / "compiled"))
    product, other = found
    assert product.measured == pytest.approx(17381 / 1.75e9 * 1e6, rel=0.01)  # the compiler's cycles
    assert product.predicted is not None
    assert product.measured is not None
    assert 0.4 < product.predicted / product.measured < 1.5
    assert other.time is None
    assert "no other.hlo" in str(other.why)


def test_an_unknown_device_is_the_callers_mistake(folder: Path) -> None:
    with pytest.raises(MeshcastError):
        list(validate_compiled(read_measured_programs(folder), Options(on="tpu-v66"), kept=folder))


def test_the_command_ends_with_a_summary(folder: Path) -> None:
    asked = ["compiled", str(folder), "--on", "tpu-v6e", "--hlo", str(folder / "compiled"), "--json"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    *rows, summary = map(json.loads, result.stdout.splitlines())
    assert [row["id"] for row in rows] == ["product", "other"]
    assert (summary["kind"], summary["rows"], summary["failed"]) == ("compiled", 2, 1)
    assert summary["geomean_error"] is not None
    table = CliRunner().invoke(app, asked[:-1])
    assert "geomean error" in table.stdout
    assert "no other.hlo" in table.stdout
