from __future__ import annotations

import tomllib

import pytest

from meshcast.base.errors import InputError
from meshcast.evidence.validate.intervals import fit_intervals, interval_toml
from meshcast.evidence.validate.programs import ProgramRow, in_fit

LATENCY_US = 1.0


def rows(factor: float, launches: float) -> list[ProgramRow]:
    """Programs that run exactly at the upper end that these two numbers give."""
    return [
        ProgramRow(
            id=f"{group}-{n}",
            group=group,
            measured=factor * bound + launches * LATENCY_US * kernels,
            predicted=bound,
            low=bound,
            high=bound,
            kernels=kernels,
        )
        for group in ("gemm", "reduce", "conv")
        for n in range(60)
        for bound, kernels in [(0.01 * 1.3**n, 1 + n % 3)]
    ]


def test_recovers_two_numbers() -> None:
    fit = fit_intervals(rows(2.5, 3.0), LATENCY_US, coverage=1.0)
    assert fit.factor == pytest.approx(2.5, abs=0.1)
    assert fit.launches == pytest.approx(3.0, abs=0.1)
    assert fit.fitted_coverage == pytest.approx(1.0)
    assert fit.held_out_coverage > 0.9
    assert fit.fitted_rows + fit.held_out_rows == 180


def test_outliers_beyond_the_coverage_are_left_out() -> None:
    programs = rows(2.0, 1.0)
    slow = ProgramRow(id="gemm-slow", group="gemm", measured=1e9, predicted=1.0, low=1.0, high=1.0, kernels=1)
    assert fit_intervals([*programs, slow], LATENCY_US).factor <= 2.1


def test_rows_below_the_bound_count_as_outside() -> None:
    programs = rows(2.0, 1.0)
    fast = [
        ProgramRow(id=f"gemm-f{n}", group="gemm", measured=0.5, predicted=1.0, low=1.0, high=1.0, kernels=1)
        for n in range(60)
    ]
    assert fit_intervals([*programs, *fast], LATENCY_US).held_out_coverage < 0.9


def test_models_of_a_family_stay_together() -> None:
    halves = {in_fit(ProgramRow(id=f"llama3-{n}b", group="llm", measured=1.0, predicted=1.0)) for n in range(20)}
    assert len(halves) == 1
    halves = {in_fit(ProgramRow(id=f"gemm-{n}", group="gemm", measured=1.0, predicted=1.0)) for n in range(20)}
    assert len(halves) == 2


def test_too_few_rows() -> None:
    with pytest.raises(InputError, match="too few"):
        fit_intervals(rows(2.0, 1.0)[:1], LATENCY_US)


def test_toml_is_read_back() -> None:
    fit = fit_intervals(rows(2.5, 3.0), LATENCY_US)
    text = interval_toml(fit, device="h200", rows=180, date="2026-01-01")
    data = tomllib.loads(text)
    assert data["schema"] == "meshcast.roofline-interval/1"
    assert data["interval"] == {"factor": fit.factor, "launches": fit.launches}
    assert "2026-01-01" in text
    assert all(len(line) <= 120 for line in text.splitlines())
