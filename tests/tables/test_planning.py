"""Shardings, steps and plans: bytes by hand, and a search that no baseline beats and no exhaustive one by much."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from meshcast.base import MeshcastError
from meshcast.hardware import resolve
from meshcast.tables import (
    DensePart,
    EmbeddingKernels,
    EmbeddingTable,
    PlacedTable,
    Sharding,
    ShardingProblem,
    StepModel,
    TablesQuestion,
    TableWires,
    TrainerRanks,
    parse_distribution,
    plan_tables,
    search,
)
from meshcast.tables.sharding import loads
from meshcast.tables.step import Load

CLUSTER = resolve("dgx-h100")
KERNELS = EmbeddingKernels(device=CLUSTER.device)
DENSE = DensePart(
    bottom_forward_s=1e-5, forward_s=1e-4, backward_s=2e-4, bottom_backward_s=2e-5, optimizer_s=1e-5, gradient_bytes=8e6
)


def _problem(tables: list[EmbeddingTable], devices: int, batch: int = 1024, memory: float = 60e9) -> ShardingProblem:
    ranks = TrainerRanks(devices=devices, node=min(devices, 8), batch=batch)
    model = StepModel(wires=TableWires(CLUSTER, ranks), dense=DENSE, kernels=KERNELS)
    return ShardingProblem(tables=tuple(tables), ranks=ranks, kernels=KERNELS, model=model, memory_bytes=memory)


def _drawn(draw: random.Random, count: int) -> list[EmbeddingTable]:
    """Tables with sizes spread as the public lists have them: rows over six decades, few of them with many look-ups."""
    return [
        EmbeddingTable(
            name=f"t{number}", rows=int(10 ** draw.uniform(1, 7.3)), dim=draw.choice([32, 64, 128]),
            pooling=draw.choice([1, 1, 2, 5, 20, 80]), indices=parse_distribution(draw.choice(["uniform", "zipf:1.05"])),
        )
        for number in range(count)
    ]  # fmt: skip


def test_bytes_of_every_way_are_those_of_its_definition() -> None:
    table = EmbeddingTable(name="t", rows=1_000_000, dim=128, pooling=10)
    ranks = TrainerRanks(devices=16, node=8, batch=100)
    ways = [Sharding(way=way) for way in ("table", "row", "table-row", "data")]
    found = {str(way): loads(table, way, ranks, KERNELS, 2.0)[0] for way in (*ways, Sharding(way="column", columns=4))}
    assert {name: load.input_bytes for name, load in found.items()} == pytest.approx(
        {"table": 1600 * 84, "column/4": 1600 * 84, "row": 1600 * 9, "table-row": 1600 * 14, "data": 0}
    )
    assert {name: load.pooled_bytes for name, load in found.items()} == pytest.approx(
        {"table": 1600 * 256, "column/4": 1600 * 64, "row": 1600 * 256, "table-row": 1600 * 256, "data": 0}
    )
    assert found["data"].reduced_bytes == 1_000_000 * 128 * 4
    assert found["column/4"].memory_bytes < 0.3 * found["table"].memory_bytes


def test_the_rank_with_the_hottest_row_has_its_look_ups_besides() -> None:
    table = EmbeddingTable(name="t", rows=10_000, dim=64, pooling=10, indices=parse_distribution("zipf:1.2"))
    hot, other = loads(table, Sharding(way="row"), TrainerRanks(devices=8, node=8, batch=128), KERNELS, 4.0)
    share = table.picked.hottest(1.0)
    assert hot.input_bytes - other.input_bytes == pytest.approx(1024 * 10 * share * 8)


def test_a_step_adds_up_as_its_formula_says() -> None:
    problem = _problem([EmbeddingTable(name="t", rows=1_000_000, dim=64, pooling=5)], 8)
    load, reduced = problem.loaded([PlacedTable(sharding=Sharding(way="table"), places=(3,))])
    told = problem.model.told(load, reduced)
    parts = told.parts_s
    pooled = float(problem.model.wires.all_to_all(8192 * 64 * 4))
    assert parts["pooled"] == pytest.approx(2 * pooled)
    by_hand = parts["look_ups"] + max(pooled, 1e-5) + 1e-4 + 2e-4 + max(pooled, 2e-5) + parts["updates"] + 1e-5
    assert told.step_s == pytest.approx(by_hand)
    assert told.slowest["updates"] == 3
    waited = replace(problem.model, pipelined=False).told(load, reduced)
    assert waited.step_s == pytest.approx(told.step_s + parts["indices"])


def test_an_uneven_all_to_all_takes_as_long_as_its_busiest_rank() -> None:
    tables = [EmbeddingTable(name=f"t{k}", rows=1000, dim=64) for k in range(2)]
    problem = _problem(tables, 8)
    whole = Sharding(way="table")
    apart, _ = problem.loaded([PlacedTable(sharding=whole, places=(0,)), PlacedTable(sharding=whole, places=(1,))])
    together, _ = problem.loaded([PlacedTable(sharding=whole, places=(0,)), PlacedTable(sharding=whole, places=(0,))])
    assert together[Load.TABLE].max() == 2 * apart[Load.TABLE].max()
    assert together[Load.TABLE].sum() == apart[Load.TABLE].sum()


@pytest.mark.parametrize("seed", range(12))
def test_no_baseline_is_faster_than_the_search(seed: int) -> None:
    draw = random.Random(seed)
    problem = _problem(_drawn(draw, draw.randint(3, 30)), draw.choice([2, 4, 8, 16]), draw.choice([128, 1024]))
    found = search(problem, tries=300)
    assert found.seconds <= min(seconds for _, seconds in found.baselines.values()) * (1 + 1e-9)
    assert problem.step(found.plan) == found.seconds
    load, _ = problem.loaded(found.plan)
    assert load[Load.MEMORY].max() <= problem.memory_bytes


def _exhausted(problem: ShardingProblem) -> float:
    """The shortest step of all plans."""
    spots = []
    for ways in problem.options:
        placed = []
        for way in ways:
            if way.way in ("row", "data"):
                placed.append(PlacedTable(sharding=way))
            else:
                placed += [
                    PlacedTable(sharding=way, places=p)
                    for p in itertools.combinations(range(problem.ranks.devices), way.columns)
                ]
        spots.append(placed)
    return min(problem.step(plan) for plan in itertools.product(*spots))


@pytest.mark.parametrize("seed", range(8))
def test_the_search_is_within_three_percent_of_all_plans(seed: int) -> None:
    draw = random.Random(100 + seed)
    problem = _problem(_drawn(draw, 4), 3, 2048)
    problem = replace(problem, tables=tuple(replace(each, ways=("table", "column", "row")) for each in problem.tables))
    assert search(problem).seconds <= 1.03 * _exhausted(problem)


def test_tables_take_only_the_ways_that_they_may() -> None:
    tables = [replace(each, ways=("row",)) for each in _drawn(random.Random(1), 5)]
    found = search(_problem([replace(each, rows=max(each.rows, 100)) for each in tables], 4), tries=50)
    assert {placed.sharding.way for placed in found.plan} == {"row"}


def test_what_does_not_fit_is_told() -> None:
    tables = tuple(EmbeddingTable(name=f"t{k}", rows=10**9, dim=128) for k in range(4))
    with pytest.raises(MeshcastError, match="the fullest of 8 devices") as error:
        plan_tables(TablesQuestion(tables=tables, on="dgx-h100", devices=8, batch=8192))
    assert error.value.exit_code == 3
    cached = tuple(replace(each, cached=0.05) for each in tables)
    assert plan_tables(TablesQuestion(tables=cached, on="dgx-h100", devices=8, batch=8192)).step.step_s > 0


def test_the_same_question_has_the_same_answer() -> None:
    tables = _drawn(random.Random(7), 12)
    first, second = (search(_problem(tables, 8), tries=200) for _ in range(2))
    assert first.plan == second.plan
    assert np.isfinite(first.seconds)
