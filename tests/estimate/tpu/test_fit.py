"""The calibration: its file is complete, the table is read as it was written, and a fit finds what was hidden."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.errors import InputError
from meshcast.estimate.fitting import geomean_error
from meshcast.estimate.tpu import Calibration, Parameters, TpuAnalytical
from meshcast.estimate.tpu.fit import fit, loss, report
from meshcast.estimate.tpu.parameters import parse_calibration, shipped_calibration
from meshcast.estimate.tpu.samples import Sample, collect, read_samples, write_samples
from meshcast.hardware import load_device
from tests.estimate.conformance import gemm

TABLE = Path(__file__).parents[3] / "data" / "tpu" / "products.jsonl.gz"
HLO = Path(__file__).parents[2] / "data" / "tpu-v6e"


def hidden(parameters: Parameters) -> list[Sample]:
    """Products whose cycles a machine of these parameters would take."""
    device = load_device("tpu-v6e")
    estimator = TpuAnalytical(Calibration(parameters=parameters, intervals={}))
    sizes = [(m, n, k) for m in (512, 2048, 8192) for n in (1024, 4096) for k in (128, 4096)]
    return [
        Sample(
            program=f"{size}",
            device="tpu-v6e",
            kernel=gemm(*size),
            cycles=estimator.work(gemm(*size), device).time * device.clock_hz,
        )
        for size in sizes
    ]


def test_the_shipped_file_is_complete() -> None:
    calibration = shipped_calibration()
    assert "tpu-v6e" in calibration.provenance
    assert "default" in calibration.intervals


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(InputError):
        parse_calibration('schema = "meshcast.tpu-parameters/1"\n[parameters]\nhbm_shore = 1.0\n')
    with pytest.raises(InputError):
        parse_calibration('schema = "meshcast.gpu-parameters/1"\n')


def test_a_fit_lowers_the_error() -> None:
    samples = hidden(replace(Parameters(), array_loss=0.3, narrow_cycles=9.0))
    start = loss(samples, Parameters())
    fitted = fit(samples, ("tpu-v6e",), Parameters())
    assert loss(samples, fitted) < start / 2
    assert len(report(samples, ("tpu-v6e",), fitted)) == 1


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    samples = hidden(Parameters())
    path = tmp_path / "table.jsonl.gz"
    write_samples(path, samples, "libtpu")
    first = path.read_bytes()
    found = read_samples(path)
    assert [(s.program, s.cycles) for s in found] == [(s.program, s.cycles) for s in samples]
    assert loss(found, Parameters()) == loss(samples, Parameters())
    write_samples(path, samples, "libtpu")
    assert path.read_bytes() == first


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("{}")
    with pytest.raises(InputError, match="cannot be read"):
        read_samples(tmp_path / "table")


def test_products_of_compiled_programs_are_collected() -> None:
    found, refused = collect(HLO, "tpu-v6e")
    assert not refused
    assert [(sample.program, sample.cycles) for sample in found] == [("product", 17381.0)]


def test_the_table_is_what_the_parameters_were_fitted_to() -> None:
    """The error that the file states is about what the table gives; v4 and v7 were not fitted."""
    samples = [sample for sample in read_samples(TABLE) if sample.cycles >= 30_000]
    lines = report(samples, ("tpu-v5e", "tpu-v5p", "tpu-v6e"), shipped_calibration().parameters)
    assert {line.split()[0] for line in lines} >= {"tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7-core"}
    assert all("fitted" in line for line in lines)
    assert geomean_error([0.1, -0.1]) == pytest.approx(0.105, rel=0.01)
