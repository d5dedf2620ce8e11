"""Ray as an engine, where it is installed: the answers of one process; without it, how to get it."""

from __future__ import annotations

import importlib.util

import pytest

from meshcast.base import UnsupportedError
from meshcast.explore.engines import engine_named
from meshcast.explore.engines.in_process import InProcess
from meshcast.explore.point import Outcome, Point
from meshcast.explore.work import SearchWork

HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_it_is_said_how_to_get_it() -> None:
    with pytest.raises(UnsupportedError, match="not installed") as told:
        engine_named("ray")
    assert "[ray]'" in (told.value.fix or "")


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed")
# JAX, where earlier tests have loaded it, warns of Ray's own start.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_ray_answers_as_this_process_does() -> None:
    asked = {"on": "h100-sxm", "settings": {"batch": "4"}, "plan": "mbs=2", "fidelity": "roofline"}
    works = [
        SearchWork(
            kind="point", point=Point(number=number, target="gpt2-tiny", asked={**asked, "plan": f"mbs={2**number}"})
        )
        for number in range(3)
    ]
    engine = engine_named("ray", workers=1)
    try:
        there = dict(engine.answers(works))
    finally:
        engine.close()
    for number, mine in InProcess().answers(works):
        theirs = there[number]
        assert isinstance(mine, Outcome)
        assert isinstance(theirs, Outcome)
        assert theirs.step_time_s == mine.step_time_s
