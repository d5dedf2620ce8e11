"""Lines from an array's cycles to latency: found again in what they made, judged on shapes left out, used by the simulator."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast import predict
from meshcast.base import InputError, UsageError
from meshcast.cli.app import app
from meshcast.estimate import FittedLines, LatencyLine, ProductLines
from meshcast.estimate.scalesim_tpu import ScaleSimTpu
from meshcast.estimate.simulator_names import load_simulator
from meshcast.estimate.systolic_lines import read_fitted_lines
from meshcast.evidence.calibrate.systolic_fit import MeasuredProduct, fitted_lines, read_measured_products
from meshcast.hardware import Device, load_device
from tests.estimate.conformance import gemm

TRUE = ProductLines(
    rows=128,
    columns=128,
    lines=((256.0, LatencyLine(slope=0.002, start=0.5)), (math.inf, LatencyLine(slope=0.0003, start=20.0))),
)
SIDES = (32, 64, 100, 200, 300, 700, 1024, 4096)


def measured(lines: ProductLines = TRUE) -> list[MeasuredProduct]:
    return [
        MeasuredProduct(m=m, k=k, n=n, time_us=lines.microseconds(m, n, k))
        for m, k, n in itertools.product(SIDES, repeat=3)
    ]


def table(path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("m", "k", "n", "time_us"))
        writer.writerows((each.m, each.k, each.n, each.time_us) for each in measured())
    return path


def test_lines_that_made_the_times_are_found_again() -> None:
    found = fitted_lines(measured(), 128, 128, where="here")
    assert [below for below, _ in found.lines.lines] == [256, math.inf]
    for (_, line), (_, true) in zip(found.lines.lines, TRUE.lines, strict=True):
        assert line.slope == pytest.approx(true.slope, rel=1e-6)
        assert line.start == pytest.approx(true.start, rel=1e-6)
    assert found.left_out.rows == found.in_sample.rows == len(SIDES) ** 3
    assert found.left_out.median_error < 1e-6
    assert found.left_out.r_squared == pytest.approx(1)


def test_a_product_and_its_transpose_are_left_out_together() -> None:
    """They have the same cycles and the same words: one would tell of the other."""
    folds = {each.fold for each in measured()}
    assert len(folds) == 5
    for m, k, n in itertools.combinations(SIDES, 3):
        one, other = (MeasuredProduct(m=a, k=k, n=b, time_us=1.0) for a, b in ((m, n), (n, m)))
        assert one.fold == other.fold


@pytest.mark.parametrize("source", ['the "best" run.csv', "C:\\runs\\new.csv", "two\nlines", "1\x7f2", "Größe 📈.csv"])
def test_names_of_sources_are_read_back(source: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.systolic.toml"
    FittedLines(device="tpu-v4", source=source, products=TRUE).save(path)
    assert read_fitted_lines(path).source == source


def test_thin_products_have_a_line_of_the_words_that_they_move(tmp_path: Path) -> None:
    true = replace(TRUE, lines=TRUE.lines[1:], thin=(128, LatencyLine(slope=2e-6, start=0.5)))
    found = fitted_lines(measured(true), 128, 128, where="here").lines
    assert found.thin is not None
    assert found.thin[0] == 128
    assert found.thin[1].slope == pytest.approx(2e-6, rel=1e-6)
    assert found.microseconds(1, 4096, 4096) == pytest.approx(2e-6 * (4096 + 4096**2 + 4096) + 0.5)
    written = tmp_path / "thin.systolic.toml"
    FittedLines(device="tpu-v6e", source="here", products=found).save(written)
    assert read_fitted_lines(written).products == found


def test_a_thin_product_s_parts_are_of_its_own_line() -> None:
    """64 x 4096 by 4096 x 64 moves 528,384 words; the line of cycles starts above all that these take."""
    lines = ProductLines(
        rows=128, columns=128, lines=((math.inf, LatencyLine(slope=2e-4, start=22.0)),),
        thin=(512, LatencyLine(slope=6e-6, start=1.0)),
    )  # fmt: skip
    model = ScaleSimTpu(FittedLines(device="tpu-v4", source="here", products=lines))
    found = model.estimate([gemm(64, 64, 4096), gemm(1024, 1024, 128)], Device.load("tpu-v4"))
    cycles = 2e-4 * (3 * 128 + 1024 - 2) * 8
    assert found.time == pytest.approx([1e-6 * (6e-6 * 528_384 + 1.0), 1e-6 * (cycles + 22.0)])
    assert found.overhead == pytest.approx([1e-6, 22e-6])
    assert found.memory_time == pytest.approx([1e-6 * 6e-6 * 528_384, 0.0])
    assert found.compute_time == pytest.approx([0.0, 1e-6 * cycles])


def test_windows_that_share_their_words() -> None:
    thin = LatencyLine(slope=1.0, start=0.0)
    lines = ProductLines(
        rows=4, columns=4, lines=((math.inf, LatencyLine(slope=1.0, start=0.0)),), thin=(512, thin)
    )  # fmt: skip
    windows, cycles = 100 * 36 + 36 * 4 + 100 * 4, (12 + 100 - 2) * 9
    assert lines.microseconds(100, 4, 36) == windows
    assert lines.timed(100, 4, 36, moved=2000).microseconds == 2000  # fewer words than windows, more than cycles
    shared = lines.timed(100, 4, 36, moved=900)
    assert (shared.microseconds, shared.by_words) == (cycles, False)
    assert lines.timed(100, 4, 36, moved=windows).microseconds == windows
    assert lines.timed(100, 4, 36, moved=9999).microseconds == windows  # zeros between what is dilated are not read


@pytest.mark.parametrize("kind", ["forward", "train"])
def test_a_network_of_convolutions_is_answered_by_lines_with_a_thin_one(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "v4.systolic.toml"
    lines = replace(TRUE, thin=(512, LatencyLine(slope=6e-6, start=1.0)))
    FittedLines(device="tpu-v4", source="here", products=lines).save(path)
    target = "resnet-tiny" if kind == "train" else "resnet-tiny-forward"
    found = predict(
        target, on="tpu-v4", fidelity="simulated", simulator="scalesim-tpu", profile=str(path), levers=False
    )
    assert found.step_time_s is not None
    assert found.provenance.simulated > 0.8


def test_rows_left_out_are_judged_by_others() -> None:
    # A part of the shapes takes twice as long: the lines of all know it, the lines of the others do not.
    products = [
        MeasuredProduct(m=p.m, k=p.k, n=p.n, time_us=p.time_us * (2 if p.fold == 0 and p.m == p.n else 1))
        for p in measured()
    ]
    found = fitted_lines(products, 128, 128, where="here")
    assert found.left_out.mean_error >= found.in_sample.mean_error > 0


@pytest.mark.parametrize(("rows", "time"), [(29, lambda i: 100 - i), (60, lambda i: 100 - 0.1 * i)])
def test_lines_that_shrink_are_refused(rows: int, time: Callable[[int], float]) -> None:
    shrinking = [MeasuredProduct(m=128 * i, k=128 * i, n=128 * i, time_us=time(i)) for i in range(1, rows + 1)]
    with pytest.raises(InputError, match="do not grow with the work: 128 x 128 x 128 in 99"):
        fitted_lines(shrinking, 256, 256, where="here")


def test_noise_where_only_the_start_counts_is_no_shrinking() -> None:
    """Small products take as long as a launch: their line may have no slope, larger ones have another."""
    noisy = [MeasuredProduct(m=m, k=8, n=8, time_us=1 + 0.01 * (-1) ** (m % 3)) for m in range(1, 60)]
    large = [MeasuredProduct(m=m, k=m, n=m, time_us=1 + (m / 256) ** 3) for m in range(256, 4097, 128)]
    found = fitted_lines([*noisy, *large], 128, 128, where="here")
    assert found.lines.lines[-1][1].slope > 0


def test_no_answer_is_faster_than_light() -> None:
    flat = ProductLines(rows=256, columns=256, lines=((math.inf, LatencyLine(slope=0.0, start=77.1)),))
    v6e = load_device("tpu-v6e")
    made = ScaleSimTpu(FittedLines(device="tpu-v6e", source="here", products=flat, error=0.2))
    found = made.estimate([gemm(4096, 4096, 4096), gemm(64, 64, 64)], v6e)
    assert found.time == pytest.approx([2 * 4096**3 / v6e.matrix_flops["bf16"], 77.1e-6])
    assert found.low[0] == found.time[0]
    assert found.low[1] < found.time[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("m,k,n,time_us\n", "a header and no rows"),
        ("m,k,n\n1,2,3\n", "no column time_us"),
        ("m,k,n,time_us\n1,2,3,nan\n", "must be positive and finite"),
        ("m,k,n,time_us\n1,2,x,4\n", "no measured product"),
        ("m,k,n,time_us\n1,2,3,0\n", "must be positive"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "products.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_measured_products(path, Device.load("tpu-v4"), ["A"])


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="too few"):
        fitted_lines(measured()[:5], 128, 128, where="here")


def test_products_of_a_table_of_ops_are_a_device_s_own(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(
        "id,source,chip,op,dtype,shape,time_us,notes\n"
        "a,x,v4,matmul,f16,M=64;N=128;K=256,3.5,trust=A; XProf\n"
        "b,x,v6e,matmul,f16,M=64;N=128;K=256,1.5,trust=A; XProf\n"
        "c,x,v4,add,f16,shape=64x64,1.5,trust=A; XProf\n"
    )
    assert read_measured_products(path, Device.load("tpu-v4"), ["A"]) == [
        MeasuredProduct(m=64, k=256, n=128, time_us=3.5)
    ]


def test_the_command_writes_lines_that_predictions_take(tmp_path: Path) -> None:
    out = tmp_path / "mine.systolic.toml"
    given = ["calibrate", "--systolic", str(table(tmp_path / "products.csv")), "--on", "tpu-v5e", "-o", str(out)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("shapes left out")
    assert "R^2 1.0000" in done.output
    told = json.loads(CliRunner().invoke(app, [*given, "--json"]).output)
    assert told["left_out"]["rows"] == len(SIDES) ** 3
    assert read_fitted_lines(out).device == "tpu-v5e"
    found = predict(
        "resnet-tiny-forward",
        on="tpu-v5e",
        fidelity="simulated",
        simulator="scalesim-tpu",
        profile=str(out),
        levers=False,
    )
    assert found.step_time_s is not None
    assert any("a convolution, which it times as the product of its windows" in each for each in found.warnings)


def test_lines_of_another_device_or_for_another_simulator_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "v4.systolic.toml"
    FittedLines(device="tpu-v4", source="here", products=TRUE).save(path)
    assert read_fitted_lines(path).products == TRUE
    with pytest.raises(UsageError, match="lines of tpu-v4, not of tpu-v5e"):
        load_simulator("scalesim-tpu", Device.load("tpu-v5e"), path)
    with pytest.raises(UsageError, match="takes no lines"):
        load_simulator("systolic", Device.load("tpu-v4"), path)
    path.write_text(path.read_text().replace("slope = 0.0003", "slope = -1"))
    with pytest.raises(InputError, match="zero or more"):
        read_fitted_lines(path)


def test_times_that_fall_with_the_work_have_no_line() -> None:
    falling = [MeasuredProduct(m=p.m, k=p.k, n=p.n, time_us=1e3 / (p.m * p.k * p.n)) for p in measured()]
    with pytest.raises(InputError, match="no line serves"):
        fitted_lines(falling, 128, 128, where="here")


def test_a_row_faster_than_the_device_can_be(tmp_path: Path) -> None:
    path = tmp_path / "fast.csv"
    path.write_text("m,k,n,time_us\n8192,8192,8192,3\n")
    with pytest.raises(InputError, match="faster than tpu-v4 at its peak in bf16"):
        read_measured_products(path, load_device("tpu-v4"), ["A"])


def test_a_row_is_held_against_the_peak_of_its_own_type(tmp_path: Path) -> None:
    """4096^3 takes 150 us in bf16 at the peak of a v6e, and half of that in bytes."""
    path, v6e = tmp_path / "fast.csv", load_device("tpu-v6e")
    path.write_text("m,k,n,time_us\n4096,4096,4096,100\n")
    with pytest.raises(InputError, match=r"in 100 us is faster than tpu-v6e at its peak in bf16, 149\.7 us") as refused:
        read_measured_products(path, v6e, ["A"])
    assert refused.value.where == f"{path}:2"
    path.write_text("m,k,n,time_us,dtype\n4096,4096,4096,100,int8\n")
    assert len(read_measured_products(path, v6e, ["A"])) == 1
    path.write_text("chip,op,dtype,shape,time_us,notes\nv6e,matmul,f32,M=4096;N=4096;K=4096,100,trust=A\n")
    with pytest.raises(InputError, match="at its peak in f32"):
        read_measured_products(path, v6e, ["A"])
