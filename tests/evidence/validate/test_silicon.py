"""`validate silicon` on tables made from our own predictions, so that every error is known beforehand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from meshcast.base import how_to_install
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.cli.app import run
from meshcast.estimate.estimator import Clocks
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.measurements import silicon
from meshcast.estimate.measurements.silicon_kernels import SiliconKernel, product_kernel
from meshcast.estimate.measurements.silicon_tables import MOST_QUANTISATION, Measured
from meshcast.estimate.power import settled_clock
from meshcast.evidence.validate.silicon import SIZES, SiliconRow, sampled, size_of, validate_silicon
from meshcast.evidence.validate.silicon_page import SiliconSummary, silicon_page
from meshcast.hardware import load_device
from tests.estimate.measurements.silicon_layout import ATTENTION, GEMM, attention_row, gemm_row, write

A100, H200 = load_device("a100-sxm-80gb"), load_device("h200")
SHAPES = [(64, 512, 512), (128, 1024, 1024), (256, 4096, 4096), (4096, 4096, 4096), (8192, 8192, 65536)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An A100 that takes a quarter longer than we say, gaps included; it stays below its power cap."""
    kernels = [product_kernel(*shape, "bf16") for shape in SHAPES]
    estimates = GpuAnalytical().estimate(kernels, A100)
    rows = [
        gemm_row("bfloat16", *shape, 1.25e3 * (time + estimates.gap))
        for shape, time in zip(SHAPES, estimates.time, strict=True)
    ]
    system = tmp_path / "a100_sxm"
    write(system / "gemm" / "trtllm" / "1.0.0" / "gemm_perf.csv", GEMM, rows)
    attention = system / "attention" / "sglang" / "0.5.10"
    write(attention / "context_attention_perf.csv", ATTENTION, [attention_row()])
    write(attention / "generation_attention_perf.csv", ATTENTION, [attention_row(isl=1, step=1023)])
    monkeypatch.setattr(silicon, "package_folder", lambda: tmp_path)
    return tmp_path


def call(m: int, n: int, k: int) -> SiliconKernel:
    source = Measured(framework="trtllm", version="1.0.0", path=Path("table"))
    return SiliconKernel(kernel=product_kernel(m, n, k, "bf16"), seconds=1e-5, calls=60, source=source)


def test_a_sample_has_as_many_of_each_size_and_is_the_same_every_time() -> None:
    tiny = [call(8, 32 * i, 32) for i in range(1, 101)]
    large = [call(8192, 8192, 8192 * i) for i in range(1, 4)]
    chosen = sampled([*tiny, *large], 20)
    assert [size_of(c) for c in chosen].count(SIZES[0][0]) == 5
    assert [size_of(c) for c in chosen].count(SIZES[3][0]) == 3
    assert chosen == sampled([*reversed(large), *reversed(tiny)], 20)
    widths = [c.kernel.geometry.n for c in chosen[:5]]  # type: ignore[union-attr]
    assert widths == [32 * i for i in (11, 31, 51, 71, 91)]  # the middles of five equal parts


def test_rows_are_held_against_the_kernel_and_its_gap(root: Path) -> None:
    rows = list(validate_silicon(["a100-sxm-80gb"], sample=20))
    assert [row.row.group for row in rows] == ["a100-sxm-80gb gemm, bf16"] * len(SHAPES)
    warm = [row.row for row in rows if "4096x4096" not in row.row.id and "8192" not in row.row.id]
    assert warm
    for row in warm:  # weights of the others sweep the cache
        assert row.time is not None
        assert row.time.error == pytest.approx(1 / 1.25 - 1, rel=1e-3)


def test_runs_are_held_against_the_clock_that_their_length_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An H200 that does as we say, 12 calls a run: 18 ms at the burst clock, 156 ms at the settled one."""
    shapes = [(8192, 8192, 8192), (8192, 8192, 65536)]
    estimates = GpuAnalytical().estimate([product_kernel(*shape, "bf16") for shape in shapes], H200)
    assert estimates.draw is not None
    lengths: tuple[Clocks, Clocks] = ("burst", "sustained")
    rows, shares = [], []
    for index, (shape, clocks) in enumerate(zip(shapes, lengths, strict=True)):
        share = settled_clock(estimates.draw.one(index), np.ones(1), H200, clocks, estimates.gap)
        rows.append(gemm_row("bfloat16", *shape, 1e3 * (float(estimates.time[index]) / share + estimates.gap)))
        shares.append(share)
    assert shares[1] < 0.95 * shares[0] < 0.9  # a wrong choice would show
    write(tmp_path / "h200_sxm" / "gemm" / "trtllm" / "1.0.0" / "gemm_perf.csv", GEMM, rows)
    monkeypatch.setattr(silicon, "package_folder", lambda: tmp_path)
    errors = [row.row.time.error for row in validate_silicon(["h200"], sample=20) if row.row.time is not None]
    assert errors == pytest.approx([0.0, 0.0], abs=1e-3)


def test_the_summary_has_every_grouping(root: Path) -> None:
    rows = tuple(validate_silicon(["a100-sxm-80gb"], ops=("gemm", "attention"), sample=20))
    summary = SiliconSummary(rows=rows)
    assert summary.parts == {"gemm": ["a100-sxm-80gb"], "attention": ["a100-sxm-80gb"]}
    assert summary.groups("gemm").all.rows == len(SHAPES)
    answer = summary.to_json()
    assert (answer["kind"], answer["rows"], answer["failed"]) == ("silicon", len(SHAPES) + 2, 0)
    assert "a100-sxm-80gb generation, bf16" in answer["groups"]
    assert set(answer["sizes"]) >= {f"a100-sxm-80gb gemm, bf16, {SIZES[0][0]}"}
    page = silicon_page(summary, command="meshcast validate silicon", page=Path("page.md"))
    assert "## Products" in page
    assert "## Attention" in page
    assert "trtllm 1.0.0" in page


def test_mistakes_are_the_callers(root: Path) -> None:
    with pytest.raises(UsageError, match="no op 'gem'"):
        list(validate_silicon(["a100-sxm-80gb"], ops=("gem",)))
    with pytest.raises(UsageError, match="no estimator"):
        list(validate_silicon(["a100-sxm-80gb"], fidelity="guess"))
    with pytest.raises(UnsupportedError, match="no silicon tables of 'mi300x'"):
        list(validate_silicon(["mi300x"]))


def test_the_command(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = root / "page.md"
    arguments = ["validate", "silicon", "--on", "a100-sxm-80gb", "--sample", "8", "--json", "--markdown", str(page)]
    monkeypatch.setattr(sys, "argv", ["meshcast", *arguments])
    with pytest.raises(SystemExit) as leaving:
        run()
    assert not leaving.value.code
    *rows, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert last["rows"] == len(rows) > 0
    assert {"id", "measured", "predicted", "unit", "error", "size"} <= set(rows[0])
    assert "# Accuracy on other GPUs" in page.read_text()


def test_the_command_asks_for_every_device_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def remember(devices: list[str], **settings: object) -> list[SiliconRow]:
        asked.update(settings, devices=devices)
        return []

    monkeypatch.setattr("meshcast.evidence.validate_silicon", remember)
    monkeypatch.setattr(sys, "argv", ["meshcast", "validate", "silicon", "--json"])
    with pytest.raises(SystemExit):
        run()
    assert asked["devices"] == list(silicon.SYSTEMS)
    assert asked["most_quantisation"] == MOST_QUANTISATION


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(silicon, "DISTRIBUTION", "no-such-distribution")
    monkeypatch.setattr(sys, "argv", ["meshcast", "validate", "silicon", "--on", "h200"])
    with pytest.raises(SystemExit) as leaving:
        run()
    assert leaving.value.code == 4
    assert how_to_install("silicon") in capsys.readouterr().err
