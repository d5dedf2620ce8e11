"""The collector: profiles and folders of measured programs joined into one file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from meshcast import Options, predict
from meshcast.estimate.measurements.file import ProfileHeader, write_rows
from meshcast.estimate.measurements.halves import is_fitted
from meshcast.estimate.measurements.kernels import kernel_to_json
from meshcast.estimate.measurements.profile import read_profile
from meshcast.estimate.profiled.interpolator import load
from meshcast.evidence.calibrate import collect
from meshcast.evidence.calibrate.measured import collect_folder
from meshcast.hardware import load_device
from tests.estimate.conformance import gemm, pass_over
from tests.evidence.calibrate.test_timed import HLO

ADD = """\
func.func public @main(%a: tensor<{n}xf32>, %b: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %0 = stablehlo.add %a, %b : tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}
"""
MODEL = """\
func.func public @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = stablehlo.exponential %a : tensor<64x64xf32>
  %1 = stablehlo.dot_general %0, %0, contracting_dims = [1] x [0]
    : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
"""
SIZES = [1 << n for n in range(10, 26)]
HEADER = ProfileHeader(device="h200", kind="NVIDIA H200", backend="gpu", suite=1, jax="0", jaxlib="0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sums that took 1 us and twice their bytes' time each, a model with its HLO and one without."""
    programs = tmp_path / "measured" / "programs"
    programs.mkdir(parents=True)
    rows = []
    for n in SIZES:
        us = 1 + 2 * 12 * n / 4.8e6
        (programs / f"add-{n}.mlir.gz").write_bytes(gzip.compress(ADD.format(n=n).encode()))
        kernels = [{"hlo_op": "loop_add_fusion", "kernel": "loop_add_fusion", "count": 1.0, "us": us}]
        rows.append({"id": f"add-{n}", "group": "elementwise", "busy_us": us, "kernels": kernels})
    kernels = [
        {"hlo_op": "command_buffer_7", "kernel": "neg_fusion", "count": 2.0, "us": 6.0},
        {"hlo_op": "command_buffer_7", "kernel": "exp_fusion", "count": 1.0, "us": 5.0},
    ]
    for name in ("toy-1b", "other-1b"):
        (programs / f"{name}.mlir.gz").write_bytes(gzip.compress(MODEL.encode()))
        rows.append({"id": name, "group": "llm", "busy_us": 11.0, "wall_us": 12.0, "kernels": kernels})
    (programs / "toy-1b.opt.hlo.gz").write_bytes(gzip.compress(HLO.encode()))
    rows.append({"id": "add-0", "group": "elementwise", "busy_us": 3.0})
    (tmp_path / "measured" / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "measured"


def profile(path: Path) -> Path:
    rows: list[dict[str, Any]] = [
        {
            "id": f"p{n}",
            "family": "gemm",
            "busy_us": 5.0 * n,
            "paired": [[kernel_to_json(gemm(128 * n, 128, 128)), 5.0 * n]],
        }
        for n in range(1, 5)
    ]
    rows[0]["paired"] += [[kernel_to_json(pass_over(64, 64)), 2.5]]
    write_rows(path, HEADER, rows)
    return path


def test_timed_kernels_of_a_profile(tmp_path: Path) -> None:
    timed = read_profile(profile(tmp_path / "a.profile.jsonl.gz")).timed_kernels()
    assert [(kernel.kind.value, seconds, probe) for kernel, seconds, probe in timed][:2] == [
        ("gemm", pytest.approx(5e-6), "p1"),
        ("loop-fusion", pytest.approx(2.5e-6), "p1"),
    ]
    assert len(timed) == 5


def test_programs_of_a_folder(folder: Path) -> None:
    found = {item.program.id: item for item in collect_folder(folder, load_device("h200"))}
    assert len(found) == len(SIZES) + 3
    (row,) = found[f"add-{SIZES[0]}"].rows
    assert (row.kernel.read_bytes, row.seconds) == (8 * SIZES[0], pytest.approx((1 + 24 * SIZES[0] / 4.8e6) * 1e-6))
    assert sorted(row.seconds for row in found["toy-1b"].rows) == pytest.approx([3e-6, 3e-6, 5e-6])
    assert "without its optimized HLO" in found["other-1b"].why
    assert "no kernels were measured" in found["add-0"].why


def test_a_half_leaves_the_other_to_judge_by(folder: Path) -> None:
    fitted, held_out = (
        {p.program.id for p in collect_folder(folder, load_device("h200"), half)} for half in ("fitted", "held-out")
    )
    assert not fitted & held_out
    assert {name for name in fitted if name.startswith("add")} == {
        n for n in fitted | held_out if n[:3] == "add" and is_fitted(n)
    }


def test_a_file_to_predict_with(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, given = tmp_path / "h200.npz", profile(tmp_path / "a.profile.jsonl.gz")
    assert collect.main([str(out), "--on", "h200", "--profile", str(given), "--measured", str(folder)]) == 0
    said = capsys.readouterr()
    assert f"{len(SIZES) + 1 + 2:6}  loop-fusion" in said.out  # two of the model's three are the same kernel
    assert "     4  gemm 16-bit" in said.out
    assert "1 without: a whole model" in said.err
    known = load(out.read_bytes(), str(out))
    assert known.sources == ("a.profile.jsonl.gz", "measured (all)")
    size = SIZES[-4]
    target = folder / "programs" / f"add-{size}.mlir.gz"
    step = predict(target, Options(on="h200", fidelity="profiled", profile=out, clocks="burst")).step_time_s
    assert step == pytest.approx((1 + 24 * size / 4.8e6) * 1e-6, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "nothing that was given"),
        (("--profile", "absent.jsonl.gz"), 2, "cannot be read"),
        (("--measured", "absent"), 2, "no such folder"),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert collect.main([str(tmp_path / "out.npz"), "--on", "h200", *arguments]) == code
    assert said in capsys.readouterr().err


def test_another_devices_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = profile(tmp_path / "a.profile.jsonl.gz")
    assert collect.main([str(tmp_path / "out.npz"), "--on", "h100-sxm", "--profile", str(given)]) == 2
    assert "measured on h200, not on h100-sxm" in capsys.readouterr().err
    assert load_device("h100-sxm").bases == ()
