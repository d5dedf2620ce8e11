"""What L2 still holds."""

from __future__ import annotations

import pytest

from meshcast.estimate.multiprocessors import cache
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


@pytest.mark.parametrize(
    ("rows", "columns", "at_once", "room"),
    [(1000, 17, 132, 20.0), (1003, 17, 132, 20.0), (64, 4096, 132, 40.0), (999, 64, 264, 90.0), (600, 33, 8, 12.0)],
)
def test_many_steps_read_as_those_that_are_played(
    rows: int, columns: int, at_once: int, room: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1000 x 17 tiles, 132 at once: 125 groups of two steps each."""
    short = panel_reads(rows, columns, 1.0, 1.0, at_once, room)
    monkeypatch.setattr(cache, "_PLAYED", 10**9)
    in_full = panel_reads.__wrapped__(rows, columns, 1.0, 1.0, at_once, room)
    assert short == pytest.approx(in_full, rel=0.03)
