"""What L2 still holds."""

from __future__ import annotations

import pytest

from meshcast.estimate.multiprocessors.cache import misses, panel_reads, swept
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.parameters import SmParameters
from meshcast.hardware import load_device
from meshcast.lower import Recency

H200 = Chip(device=load_device("h200"), parameters=SmParameters())


def test_sweeps_hit_by_what_falls_into_a_set() -> None:
    assert swept(0.0) == 1.0
    assert swept(0.25) > 0.999
    assert swept(1.0) == pytest.approx(0.467, abs=0.001)  # P(Poisson(16) <= 15)
    assert swept(2.0) < 0.001
    assert swept(1e6) == 0.0
    shares = [swept(step / 10) for step in range(30)]
    assert shares == sorted(shares, reverse=True)


def test_what_ran_since_pushes_bytes_out() -> None:
    fresh = misses(1e6, 1e6, H200, None)
    aged = misses(1e6, 1e6, H200, Recency(reads=((500_000_000, 1_000_000),), written=0))
    assert fresh.read < 0.001
    assert aged.read > 0.999
    assert aged.written < 0.001


def test_panels_that_fit_are_read_once() -> None:
    assert panel_reads(32, 32, 1e6, 1e6, 132, 1e9) == 64e6


def test_panels_that_do_not_fit_are_read_again() -> None:
    """Two groups of eight rows go past 128 columns each; L2 holds 40 panels, so that the second reads all columns again."""
    assert panel_reads(16, 128, 1.0, 1.0, 128, 40.0) == 16 + 2 * 128
