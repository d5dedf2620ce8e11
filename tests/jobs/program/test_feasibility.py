"""What is offered to a program that does not fit: nothing that would not help it."""

from __future__ import annotations

import pytest

from meshcast.jobs.program.feasibility import Spread, memory_verdict
from meshcast.simulate import MemoryUse

GIB = 2**30
HELD = MemoryUse(
    peak=200 * GIB, arguments=150 * GIB, outputs=0, temporaries=50 * GIB, aliased=0, by_role={"parameter": 150 * GIB}
)


@pytest.mark.parametrize(
    ("spread", "offered", "not_offered"),
    [
        ("shared", "use 2.5 times as many devices, or devices with at least 200 GiB", "share it out"),
        ("whole", "shard it over 3 devices or more", "times as many devices"),
        ("whole", "use devices with at least 200 GiB", "further"),
        ("recorded", "use devices with at least 200 GiB", "shar"),
    ],
)
def test_more_devices_are_offered_to_what_is_shared_out(spread: Spread, offered: str, not_offered: str) -> None:
    verdict = memory_verdict(HELD, 80 * GIB, spread=spread)
    assert verdict is not None
    text = "; ".join(verdict.levers)
    assert offered in text
    assert not_offered not in text


def test_what_fits_has_no_verdict() -> None:
    assert memory_verdict(HELD, 200 * GIB, spread="whole") is None
