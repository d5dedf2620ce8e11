"""Lines from an array's cycles to latency: found again in what they made, judged on shapes left out, used by the simulator."""

from __future__ import annotations

import csv
import itertools
import json
import math
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


def test_negative_numbers_are_left_out_of_a_line() -> None:
    shrinking = [MeasuredProduct(m=m, k=64, n=64, time_us=100 - m / 100) for m in range(10, 1000, 10)]
    found = fitted_lines(shrinking, 128, 128, where="here")
    assert all(line.slope >= 0 and line.start >= 0 for _, line in found.lines.lines)


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
    with pytest.raises(InputError, match="faster than the device's highest peak"):
        read_measured_products(path, load_device("tpu-v4"), ["A"])
