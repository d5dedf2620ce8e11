"""What a stage does at its end, told twice: as sums one after the other, and as their seconds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from meshcast.jobs.pipeline.walk import gradient_seconds, gradient_sums


def test_the_seconds_of_gradients_are_those_of_their_sums() -> None:
    plan = SimpleNamespace(level_bytes={})
    deferred = [
        SimpleNamespace(share=SimpleNamespace(seconds=seconds, count=count), collective=None, devices=8, plan=plan)
        for seconds, count in ((0.3, 3), (0.7, 7), (0.0, 2))
    ]
    step: Any = SimpleNamespace(estimates=[SimpleNamespace(deferred=deferred)], reductions=[None])
    sums = gradient_sums(None, step, 0)  # type: ignore[arg-type]
    assert len(sums) == 10
    assert gradient_seconds(step, 0) == sum(each.seconds for each in sums)
