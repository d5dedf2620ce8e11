"""A point is what `predict` says of it, bit by bit; and what does not change between points is not worked out again."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast import predict
from meshcast.estimate import chain
from meshcast.explore.evaluating import evaluate, outcome_of
from meshcast.explore.point import Point
from meshcast.jobs.program import lowering
from meshcast.network import models
from meshcast.simulate import issue_order
from meshcast.simulate.memory import liveness as memory

SETTINGS = {"batch": "8", "seq": "64"}
PLANS = ("dp=4", "pp=2,tp=2,mbs=2")


def _point(number: int, **asked: Any) -> Point:
    given = {"on": "dgx-h100", "fidelity": "analytical", "settings": SETTINGS, **asked}
    return Point(number=number, target="gpt2-tiny", asked=given)


@pytest.mark.parametrize("plan", PLANS)
def test_a_point_is_what_predict_says_of_it(plan: str) -> None:
    found = evaluate(_point(0, plan=plan))
    told = outcome_of(
        predict("gpt2-tiny", on="dgx-h100", fidelity="analytical", lowering="modelled", plan=plan, settings=SETTINGS)
    )
    assert {**found.to_json(), "seconds": 0} == {**told.to_json(), "seconds": 0}
    assert found.answered


@pytest.mark.parametrize(
    ("change", "again"),
    [("memory.bandwidth=4TB/s", {"estimated"}), ("nvlink.link_bandwidth=50GB/s", {"planned"})],
)
def test_other_hardware_asks_again_for_what_it_changes_alone(
    monkeypatch: pytest.MonkeyPatch, change: str, again: set[str]
) -> None:
    point = _point(0, plan=PLANS[1])
    evaluate(point)
    evaluate(_point(1, plan=PLANS[1], on="dgx-h100+nvlink.latency=2us"))  # whose device is that of changed networks
    asked: set[str] = set()

    def counted(place: Any, name: str, what: str) -> None:
        own = getattr(place, name)

        def counting(*args: Any, **named: Any) -> Any:
            asked.add(what)
            return own(*args, **named)

        monkeypatch.setattr(place, name, counting)

    counted(lowering, "_lowered", "lowered")
    counted(memory, "_peak_memory", "held")
    counted(issue_order, "_planned", "ordered")
    counted(models, "plan_collective", "planned")
    counted(chain, "asked_estimates", "estimated")
    assert evaluate(_point(2, plan=PLANS[1], on=f"dgx-h100+{change}")).answered
    assert asked == again
