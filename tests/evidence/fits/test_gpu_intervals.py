"""Intervals of `analytical`, remade from launches whose seconds are known."""

from __future__ import annotations

import pytest

from meshcast.base.errors import InputError
from meshcast.estimate import GpuAnalytical
from meshcast.evidence.fits.gpu_intervals import (
    MIN_KERNELS,
    TimedProgram,
    coverage,
    fitted_bounds,
    kernel_bounds,
    with_intervals,
)
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind

H200 = load_device("h200")
COPY = Kernel(
    name="copy", kind=KernelKind.LOOP_FUSION, dtype="f32", read_bytes=1 << 20, written_bytes=1 << 20, elements=1 << 18
)
SECONDS = float(GpuAnalytical().estimate([COPY], H200).time[0])


def taking(*factors: float) -> TimedProgram:
    """Copies that took so many times what is predicted."""
    return TimedProgram((COPY,) * len(factors), tuple(factor * SECONDS for factor in factors))


def test_quantiles_by_kind_where_there_are_enough_kernels() -> None:
    few = [taking(1.5)] * (MIN_KERNELS - 1)
    assert kernel_bounds(few, H200, 0.1) == {"default": (1.0, pytest.approx(1.5))}
    spread = [taking(0.5 + index / 100) for index in range(101)]
    bounds = kernel_bounds(spread, H200, 0.1)
    assert bounds["loop-fusion"] == bounds["default"] == (pytest.approx(0.6), pytest.approx(1.4))


def test_the_narrowest_intervals_that_hold_enough_programs() -> None:
    spread = [taking(0.5 + index / 100) for index in range(101)]
    tail, bounds = fitted_bounds(spread, H200, 0.9)
    assert bounds == kernel_bounds(spread, H200, tail)
    assert coverage(spread, H200, bounds) >= 0.9
    assert coverage(spread, H200, kernel_bounds(spread, H200, tail + 0.01)) < 0.9
    # What is too long here and too short there lies inside together: programs are judged, not kernels.
    assert fitted_bounds([taking(0.5, 1.5)] * 60, H200, 0.9)[0] == 0.2
    with pytest.raises(InputError, match="no program"):
        fitted_bounds([], H200)


def test_a_file_keeps_everything_before_its_intervals() -> None:
    text = "[parameters]\na = 1  # with a comment\n\n# of another day\n# two lines\n[intervals]\ngemm = [0.1, 9.0]\n"
    made = with_intervals(text, {"gemm": (0.5, 2.0), "default": (0.25, 4.0)}, ["today"])
    kept = "[parameters]\na = 1  # with a comment\n\n"
    assert made == f"{kept}# today\n[intervals]\ndefault = [0.250, 4.000]\ngemm = [0.500, 2.000]\n"
    with pytest.raises(InputError, match="no section"):
        with_intervals("[parameters]\n", {}, [])
