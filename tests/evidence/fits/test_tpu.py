"""The calibration: its file is complete, the table is read as it was written, and a fit finds what was hidden."""

from __future__ import annotations

import gzip
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.estimate.tpu import TpuAnalytical, TpuCalibration, TpuParameters
from meshcast.estimate.tpu.parameters import parse_calibration, shipped_tpu_calibration
from meshcast.evidence.fits import tpu_samples as samples
from meshcast.evidence.fits.fitting import geomean_error
from meshcast.evidence.fits.tpu import DEVICES, FITTED, fit, loss, main, report, worth_fitting
from meshcast.evidence.fits.tpu_samples import ProductSample, SampleTable, collect, read_table, write_table
from meshcast.hardware import load_device
from tests.estimate.conformance import gemm

TABLE = Path(__file__).parents[3] / "data" / "tpu" / "products.jsonl.gz"
HLO = Path(__file__).parents[2] / "data" / "tpu-v6e"


def hidden(parameters: TpuParameters) -> list[ProductSample]:
    """Products whose cycles a machine of these parameters would take."""
    device = load_device("tpu-v6e")
    estimator = TpuAnalytical(TpuCalibration(parameters=parameters, intervals={}))
    sizes = [(m, n, k) for m in (512, 2048, 8192) for n in (1024, 4096) for k in (128, 4096)]
    return [
        ProductSample(
            program=f"{size}",
            device="tpu-v6e",
            kernel=gemm(*size),
            cycles=estimator.work(gemm(*size), device).time * device.clock_hz,
        )
        for size in sizes
    ]


def test_the_shipped_file_is_complete() -> None:
    calibration = shipped_tpu_calibration()
    assert "tpu-v6e" in calibration.provenance
    assert "default" in calibration.intervals


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(InputError):
        parse_calibration('schema = "meshcast.tpu-parameters/1"\n[parameters]\nhbm_shore = 1.0\n')
    with pytest.raises(InputError):
        parse_calibration('schema = "meshcast.gpu-parameters/1"\n')


def test_a_fit_lowers_the_error() -> None:
    samples = hidden(replace(TpuParameters(), array_loss=0.3, narrow_cycles=9.0))
    start = loss(samples, TpuParameters())
    fitted = fit(samples, ("tpu-v6e",), TpuParameters())
    assert loss(samples, fitted) < start / 2
    assert len(report(samples, ("tpu-v6e",), fitted)) == 1


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    samples = hidden(TpuParameters())
    path = tmp_path / "table.jsonl.gz"
    table = SampleTable(samples=tuple(samples), compilers={"tpu-v6e": "libtpu 1"})
    write_table(path, table)
    first = path.read_bytes()
    found = read_table(path)
    assert [(s.program, s.cycles) for s in found.samples] == [(s.program, s.cycles) for s in samples]
    assert found.compilers == table.compilers
    assert loss(found.samples, TpuParameters()) == loss(samples, TpuParameters())
    write_table(path, found)
    assert path.read_bytes() == first


def test_a_table_says_which_compiler_each_device_was_asked_of(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl.gz"
    samples = hidden(TpuParameters())
    table = SampleTable(samples=tuple(samples), compilers={"tpu-v6e": "libtpu 1"})
    other = table.with_device("tpu-v5e", [replace(samples[0], device="tpu-v5e")], "libtpu 2")
    assert other.compilers == {"tpu-v6e": "libtpu 1", "tpu-v5e": "libtpu 2"}
    assert len(other.samples) == len(samples) + 1
    assert len(other.with_device("tpu-v6e", [], "libtpu 3").samples) == 1
    write_table(path, replace(table, compilers={"tpu-v6e": ""}))
    with pytest.raises(InputError, match="no compiler is named for the products of tpu-v6e"):
        read_table(path)


def test_what_compiled_a_folder_is_the_installed_compiler_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.jsonl.gz"
    command = ["fit", str(path), "--collect", str(HLO), "--on", "tpu-v6e"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr("meshcast.evidence.fits.tpu.installed_version", lambda: None)
    with pytest.raises(SystemExit):
        main()
    assert "--compiler" in capsys.readouterr().err
    monkeypatch.setattr("meshcast.evidence.fits.tpu.installed_version", lambda: "libtpu 4")
    main()
    assert read_table(path).compilers == {"tpu-v6e": "libtpu 4"}
    monkeypatch.setattr(sys, "argv", [*command, "--compiler", "libtpu 5"])
    main()
    assert read_table(path).compilers == {"tpu-v6e": "libtpu 5"}


def test_another_file_is_refused(tmp_path: Path) -> None:
    for content, said in (("{}", "schema is None"), ("[]", "schema is None"), ("no table", "cannot be read")):
        (tmp_path / "table").write_text(content)
        with pytest.raises(InputError, match=said):
            read_table(tmp_path / "table")


def test_products_of_compiled_programs_are_collected() -> None:
    found, refused = collect(HLO, "tpu-v6e")
    assert not refused
    assert [(sample.program, sample.cycles) for sample in found] == [("product", 17381.0)]


def test_the_table_is_what_the_parameters_were_fitted_to() -> None:
    """The errors that the file states are those that the table gives; v4 and v7 were not fitted."""
    table, calibration = read_table(TABLE), shipped_tpu_calibration()
    lines = report(worth_fitting(table), DEVICES, calibration.parameters)
    assert {line.split()[0] for line in lines} == {"tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7-core"}
    stated = calibration.provenance.splitlines()
    assert [line for line in lines if line not in stated] == []
    assert all(compiler in stated[0] for compiler in table.compilers.values())


def test_errors_are_geometric_means() -> None:
    assert geomean_error([0.1, -0.1]) == pytest.approx(0.105, rel=0.01)


def test_parameters_set_by_hand_name_their_source_and_keep_their_digits() -> None:
    by_hand = {f.name: f for f in fields(TpuParameters) if f.name not in FITTED}
    assert all(f.metadata["source"] for f in by_hand.values())
    start = {name: getattr(TpuParameters(), name) for name in by_hand}
    shipped = shipped_tpu_calibration().parameters
    assert {name: getattr(shipped, name) for name in by_hand} == start


def test_a_written_file_keeps_the_interval_of_the_compilers_own_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "tpu.toml"
    monkeypatch.setattr(sys, "argv", ["fit", str(TABLE), "--report", "--write", str(written)])
    main()
    found, shipped = parse_calibration(written.read_text()), shipped_tpu_calibration()
    assert found.intervals == shipped.intervals
    assert "compiler's cycles over predicted" in written.read_text()


def test_packed_programs_that_cannot_be_read_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cut.hlo.gz").write_bytes(gzip.compress(b"HloModule m")[:-6])
    (tmp_path / "large.hlo.gz").write_bytes(gzip.compress(bytes(1000)))
    (tmp_path / "odd.hlo").write_bytes(b"\xff\xfe")
    monkeypatch.setattr(samples, "LARGEST_TEXT", 999)
    found, refused = collect(tmp_path, "tpu-v6e")
    assert not found
    cut, large, odd = refused
    assert cut.startswith("cut: gzip that is cut off")
    assert large.startswith("large: unpacks to more than 999 B")
    assert odd.startswith("odd: no text")
    with pytest.raises(InputError, match="unpacks to more than"):
        read_table(tmp_path / "large.hlo.gz")
