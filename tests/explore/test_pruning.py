"""Real spaces, smaller than those that searches are for: bounds find the best of all plans, and have few of them predicted.

Predicting all of them takes minutes. What came out is on file, as `benchmarks/pruning.py --record` wrote it: the step of every
plan, and what layers take that bounds ask about. The search, the bounds and their levels are the code's own.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pruning import SPACES, file_of
from meshcast.explore import explore
from meshcast.explore.point import Outcome
from meshcast.explore.work import Answer, SearchWork
from meshcast.jobs import LayersCost

FOLDER = Path(__file__).parents[1] / "data"
# The largest share of the plans that a search may have predicted: of a small space many lie close to the best.
SHARES = {"gpt3": 0.05, "llama": 0.2}
Asked = tuple[str, int, int, bool, str]


class OnFile:
    """An engine that answers by what is on file, and counts."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.steps: dict[str, dict[str, Any]] = {row["plan"]: row for row in data["points"]}
        self._layers: dict[Asked, dict[str, Any] | None] = {
            (row["plan"], row["first"], row["layers"], row["last"], row["fidelity"]): row["cost"]
            for row in data["layers"]
        }
        self.predicted: list[str] = []

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        for number, work in enumerate(works):
            plan = str(work.point.plan)
            if work.kind == "point":
                self.predicted.append(plan)
                row = self.steps[plan]
                yield (
                    number,
                    Outcome(
                        status=row["status"],
                        step_time_s=row["step_time_s"],
                        memory_bytes=row["memory_bytes"],
                        devices=128,
                    ),
                )
                continue
            asked = plan, work.first, work.layers, work.last, work.point.asked["fidelity"]
            assert asked in self._layers, "bounds ask for what is not on file: record it anew (benchmarks/pruning.py)"
            cost = self._layers[asked]
            yield number, LayersCost.from_json(cost) if cost is not None else None

    def close(self) -> None: ...


@pytest.fixture(scope="module", params=SHARES)
def named(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    name: str = request.param
    return name, json.loads(lzma.decompress(file_of(name, FOLDER).read_bytes()))


def test_the_file_has_the_space(named: tuple[str, dict[str, Any]]) -> None:
    name, data = named
    plans = [point.plan for point in SPACES[name].points()]
    assert sorted(map(str, plans)) == sorted(OnFile(data).steps), "plans are others: record it anew"
    assert len({"pp=" in str(plan) for plan in plans}) == 2, "with stages and without"


def test_the_best_plan_is_found_with_few_of_the_predictions(named: tuple[str, dict[str, Any]]) -> None:
    name, data = named
    engine = OnFile(data)
    found = explore(SPACES[name], search="best", engine=engine, top=1)
    every = {plan: row["step_time_s"] for plan, row in engine.steps.items() if row["step_time_s"] is not None}
    best = min(every, key=lambda plan: every[plan])
    assert found.best[0].point.plan == best
    assert found.tally.below_bounds == 0
    assert len(engine.predicted) == len(set(engine.predicted)) == found.tally.evaluated
    assert found.tally.evaluated <= SHARES[name] * len(SPACES[name])


def test_no_bound_is_above_a_step(named: tuple[str, dict[str, Any]]) -> None:
    """Of the plans that were left out, too: each with the last bound that it had."""
    name, data = named
    engine = OnFile(data)
    found = explore(SPACES[name], search="best", engine=engine, top=1)
    steps = {plan: row["step_time_s"] for plan, row in engine.steps.items()}
    left = [(str(plan), bound) for plan, bound in found.left_out if steps[str(plan)] is not None]
    assert len(left) > len(SPACES[name]) / 10
    assert all(bound.time_s <= steps[plan] * (1 + 1e-9) for plan, bound in left)
