"""How fast a host issues PyTorch's calls: the middle of what was timed, and what `--host` makes of it."""

from __future__ import annotations

from itertools import count, cycle

import pytest

from meshcast.programs import HostPace, pace_of, pace_told
from meshcast.simulate.issued_calls import ADDITION, CallCosts, call_costs


def test_the_middle_and_the_range() -> None:
    """A clock that counts chains: 100 of them, a tenth of them slow."""
    times = cycle([10.0] * 9 + [16.0])
    ticks = count()
    found = pace_of(lambda: next(times), seconds=100, clock=lambda: float(next(ticks)))
    assert (found.addition_us, found.low_us, found.high_us) == (10.0, 10.0, 16.0)
    assert found.host == "10us"
    assert "--host 10us" in pace_told(found)


def test_the_default_host_by_its_addition() -> None:
    pace = HostPace(addition_us=ADDITION * 1e6, low_us=8.0, high_us=16.0)
    assert call_costs(pace.host).call == pytest.approx(CallCosts().call)
    assert call_costs(HostPace(addition_us=ADDITION * 5e5, low_us=6.0, high_us=7.0).host).graph == pytest.approx(
        CallCosts().graph / 2
    )
