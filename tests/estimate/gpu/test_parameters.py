"""The calibration file: what it says is read, what it may not say is refused, and a fit finds what was hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.base.errors import InputError
from meshcast.estimate.calibration import WIDENING
from meshcast.estimate.gpu.parameters import (
    GPU_SCHEMA,
    GpuCalibration,
    GpuParameters,
    parse_calibration,
    shipped_gpu_calibration,
)
from meshcast.evidence.fits import gpu as fit
from meshcast.evidence.fits.fitting import search, to_toml


def test_the_shipped_file_is_complete() -> None:
    calibration = shipped_gpu_calibration()
    assert "H200" in calibration.provenance
    assert all(low <= 1 <= high for low, high in calibration.intervals.values())
    assert "default" in calibration.intervals


def test_what_is_written_is_read_again() -> None:
    changed = replace(GpuParameters(), overlap=7.0)
    text = to_toml(changed, {"gemm": (0.9, 1.1)}, schema=GPU_SCHEMA, provenance="by hand", fitted=fit.FITTED)
    calibration = parse_calibration(text)
    assert calibration.parameters == replace(GpuParameters(), overlap=7.0)
    assert calibration.intervals == {"gemm": (0.9, 1.1)}


def test_stated_intervals_are_wider_than_the_residuals_they_come_from() -> None:
    calibration = GpuCalibration(parameters=GpuParameters(), intervals={"gemm": (0.9, 1.1)})
    assert calibration.interval("gemm") == pytest.approx((0.9**WIDENING, 1.1**WIDENING))
    assert calibration.interval("sort") == pytest.approx((0.5**WIDENING, 2.0**WIDENING))
    assert WIDENING > 1


@pytest.mark.parametrize("line", ["overlop = 1.0", "overlap = -1.0", 'overlap = "much"', "overlap = nan"])
def test_wrong_parameters_are_refused(line: str) -> None:
    with pytest.raises(InputError):
        parse_calibration(f'schema = "meshcast.gpu-parameters/1"\n[parameters]\n{line}\n')


def test_another_schema_is_refused() -> None:
    with pytest.raises(InputError):
        parse_calibration('schema = "meshcast.gpu-parameters/9"\n')


def test_the_search_finds_a_minimum() -> None:
    found = search(GpuParameters(), ("hbm_read", "overlap"), lambda p: abs(p.hbm_read - 0.6) + abs(p.overlap - 9.0))
    assert found.hbm_read == pytest.approx(0.6, rel=0.03)
    assert found.overlap == pytest.approx(9.0, rel=0.03)
