"""Which number of the hardware, changed by a tenth for the better, would help a point most: each is tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from meshcast.explore.engines import Engine
from meshcast.explore.evaluating import cluster_of, options_of
from meshcast.explore.point import Outcome, Point
from meshcast.explore.search import Found
from meshcast.explore.work import SearchWork
from meshcast.hardware import Cluster, named_with_changes

CHANGE = 0.1
_LESS = ("latency", "launch_latency")  # numbers that are better small


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What a changed number gives.

    Attributes:
        key: The number.
        change: How it is changed: `+10%`.
        step_time_s: The step with it; None where it does not run.
        saved_share: The share of the step that it saves.
    """

    key: str
    change: str
    step_time_s: float | None
    saved_share: float

    def to_json(self) -> dict[str, Any]:
        """The object of a summary."""
        return {
            "key": self.key, "change": self.change, "step_time_s": self.step_time_s, "saved_share": self.saved_share,
        }  # fmt: skip


def _hardware_keys(cluster: Cluster) -> list[str]:
    """Numbers of hardware whose change may change a step: rates and capacities of the device, and its levels' links."""
    wanted = (
        "matrix.",
        "memory.",
        "cache.",
        "vector.",
        "compute.clock",
        "compute.launch_latency",
        "power.tdp",
        "host.",
    )
    found = [key for key in cluster.device.facts if key.startswith(wanted) and key != "cache.partitions"]
    return found + [f"{level.name}.{name}" for level in cluster.levels for name in ("link_bandwidth", "latency")]


def sensitivities(found: Found, engine: Engine) -> list[Sensitivity]:
    """Every number of a point's hardware changed by a tenth for the better, what helps most first."""
    base = found.outcome.step_time_s
    cluster = cluster_of(options_of({**found.point.asked, "plan": None}))
    on = found.point.asked["on"]
    if base is None or not isinstance(on, str):
        return []
    tried: list[tuple[str, str]] = []
    works: list[SearchWork] = []
    for key in _hardware_keys(cluster):
        change = f"{'-' if key.rpartition('.')[2] in _LESS else '+'}{CHANGE:.0%}"
        name = named_with_changes(on, cluster, f"{key}={change}", where="sensitivity")
        point = Point(number=len(works), target=found.point.target, asked={**found.point.asked, "on": name})
        tried.append((key, change))
        works.append(SearchWork(kind="point", point=point))
    results: list[Sensitivity] = []
    for number, answer in engine.answers(works):
        assert isinstance(answer, Outcome)
        key, change = tried[number]
        step = answer.step_time_s
        results.append(
            Sensitivity(
                key=key, change=change, step_time_s=step, saved_share=1 - step / base if step is not None else 0.0
            )
        )
    return sorted(results, key=lambda each: (-each.saved_share, each.key))


def looked_at_again(found: list[Found], options: dict[str, Any], engine: Engine) -> list[Found]:
    """Points predicted again with other options, such as a finer fidelity, in the same order."""
    works = [
        SearchWork(kind="point", point=replace(each.point, asked={**each.point.asked, **options})) for each in found
    ]
    answers = dict(engine.answers(works))
    again = []
    for number, each in enumerate(found):
        outcome = answers[number]
        assert isinstance(outcome, Outcome)
        again.append(replace(each, point=works[number].point, outcome=outcome, allowed=outcome.answered))
    return again
