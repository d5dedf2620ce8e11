"""Shardings, steps and plans: bytes by hand, and a search that no baseline beats and no exhaustive one by much."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from meshcast.base import MeshcastError
from meshcast.hardware import parse_conditions, resolve
from meshcast.jobs import (
    DensePart,
    EmbeddingKernels,
    EmbeddingTable,
    PlacedTable,
    Sharding,
    ShardingProblem,
    StepModel,
    TablesAnswer,
    TablesQuestion,
    TableWires,
    TrainerRanks,
    parse_distribution,
    plan_tables,
    search,
    table_rows,
)
from meshcast.jobs.embedding_tables.answer import problem_of
from meshcast.jobs.embedding_tables.sharding import loads
from meshcast.jobs.embedding_tables.simulated import SimulatedStep, StepWork, dense_of_ranks
from meshcast.jobs.embedding_tables.step import Load

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


def test_rows_that_are_not_pooled_are_sent_one_by_one() -> None:
    table = EmbeddingTable(name="t", rows=1_000_000, dim=128, pooling=10, pooled=False)
    ranks = TrainerRanks(devices=16, node=8, batch=100)
    whole, row = (loads(table, Sharding(way=way), ranks, KERNELS, 2.0)[0] for way in ("table", "row"))
    assert (whole.pooled_bytes, row.pooled_bytes) == pytest.approx((1600 * 10 * 256, 1600 * 10 * 256 / 16))
    problem = _problem([table], 16, 100)
    load, _ = problem.loaded([PlacedTable(sharding=Sharding(way="row"))])
    assert load[Load.ROW].max() == 0.0 < load[Load.TABLE].min()  # no sums: an all-to-all


def test_the_rank_with_the_hottest_row_has_its_look_ups_besides() -> None:
    table = EmbeddingTable(name="t", rows=10_000, dim=64, pooling=10, indices=parse_distribution("zipf:1.2"))
    hot, other = loads(table, Sharding(way="row"), TrainerRanks(devices=8, node=8, batch=128), KERNELS, 4.0)
    share = table.picked.hottest(1.0)
    assert hot.input_bytes - other.input_bytes == pytest.approx(1024 * 10 * share * 8)


def test_a_step_adds_up_as_its_formula_says() -> None:
    problem = _problem([EmbeddingTable(name="t", rows=1_000_000, dim=64, pooling=5)], 8)
    plan = [PlacedTable(sharding=Sharding(way="table"), places=(3,))]
    told = problem.told(plan)
    parts = told.parts_s
    pooled = float(problem.model.wires.all_to_all(8192 * 64 * 4))
    assert parts["pooled"] == pytest.approx(2 * pooled)
    by_hand = parts["look_ups"] + max(pooled, 1e-5) + 1e-4 + 2e-4 + max(pooled, 2e-5) + parts["updates"] + 1e-5
    assert problem.step(plan) == pytest.approx(by_hand)
    assert told.slowest["updates"] == 3
    # Rank by rank, pooled rows wait where the next indices are still on the wires.
    late = max(0.0, parts["indices"] - parts["look_ups"])
    assert told.step_s == pytest.approx(by_hand + late)
    adding = ("look_ups", "updates", "dense", "exposed_pooled", "exposed_indices", "exposed_reduced", "waiting")
    assert sum(parts[name] for name in adding) == pytest.approx(told.step_s)
    waited = replace(problem, model=replace(problem.model, pipelined=False))
    assert waited.told(plan).step_s == pytest.approx(by_hand + parts["indices"]) == waited.step(plan)


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
    assert problem.simulated(found.plan) == found.seconds
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
    plans = sorted(itertools.product(*spots), key=problem.step)
    return min(map(problem.simulated, plans[:200]))  # what the formula has far behind is not ahead rank by rank


@pytest.mark.parametrize("seed", range(3))
def test_the_search_is_within_three_percent_of_all_plans(seed: int) -> None:
    draw = random.Random(100 + seed)
    problem = _problem(_drawn(draw, 4), 3, 2048)
    problem = replace(problem, tables=tuple(replace(each, ways=("table", "column", "row")) for each in problem.tables))
    assert search(problem).seconds <= 1.03 * _exhausted(problem)


def test_tables_take_only_the_ways_that_they_may() -> None:
    tables = [replace(each, ways=("row",)) for each in _drawn(random.Random(1), 5)]
    found = search(_problem([replace(each, rows=max(each.rows, 100)) for each in tables], 4), tries=50)
    assert {placed.sharding.way for placed in found.plan} == {"row"}


@pytest.mark.parametrize("way", ["table", "column", "row", "table-row", "grid", "data"])
def test_on_one_device_every_way_is_the_whole_table(way: str) -> None:
    tables = (EmbeddingTable(name="a", rows=1000, dim=64, ways=(way,)),)
    answer = plan_tables(TablesQuestion(tables=tables, on="h100", devices=1, batch=1024))
    assert [str(placed.sharding) for placed in answer.plan] == ["table"]


@pytest.mark.parametrize(
    ("way", "rows", "dim"), [("row", 7, 64), ("column", 100, 32), ("grid", 100, 64), ("table-row", 100, 64)]
)
def test_a_table_that_can_take_no_way_that_it_may_is_told(way: str, rows: int, dim: int) -> None:
    tables = (EmbeddingTable(name="user", rows=rows, dim=dim, ways=(way,)),)
    with pytest.raises(MeshcastError, match=f"ways of user: .*{way}-wise") as error:
        plan_tables(TablesQuestion(tables=tables, on="dgx-h100", devices=8, batch=1024))
    assert error.value.exit_code == 2


def test_a_bag_has_no_more_than_all_look_ups() -> None:
    """A spread that no lengths with such a mean can have does not make a block longer than the batch."""
    wide, widest = (EmbeddingTable(name="a", rows=1000, dim=64, spread=spread) for spread in (1e4, 1e6))
    told = [table_rows((table,), "h200", 512)[0]["forward_s"] for table in (wide, widest)]
    assert told[0] == told[1]


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


def test_a_rank_with_look_ups_and_one_with_updates_are_not_both_waited_for() -> None:
    zeros = {name: np.zeros(2) for name in dense_of_ranks((DENSE,), np.zeros(2, dtype=np.int64))}
    work = StepWork(
        look_ups=np.array([3.0, 1.0]), updates=np.array([1.0, 4.0]), pooled=0.5, indices=0.0, reduced=0.0, buckets=1,
        dense=zeros,
    )  # fmt: skip
    done = SimulatedStep(work).run()
    assert done.step_s == pytest.approx(4 + 1 + 2 * 0.5)  # the second rank's updates and look-ups, not 3 + 4
    assert done.waited["pooled"].tolist() == pytest.approx([1.0, 1.0])
    assert done.waited["ranks"].tolist() == pytest.approx([1.0, 0.0])


def test_collectives_wait_for_each_other_on_the_wires() -> None:
    dense = {name: np.zeros(1) for name in dense_of_ranks((DENSE,), np.zeros(1, dtype=np.int64))}
    dense["backward_s"] = np.array([4.0])
    work = StepWork(
        look_ups=np.zeros(1), updates=np.ones(1), pooled=1.0, indices=0.0, reduced=8.0, buckets=4, dense=dense
    )  # fmt: skip
    done = SimulatedStep(work).run()
    # Three buckets are full before the pooled rows' gradients, at 1, 2 and 3 after the first pooled rows: they end at 7, the
    # gradients at 8, the last bucket at 10; the first pooled rows take 1.
    assert done.step_s == pytest.approx(11.0)
    # For 3 of the 4 that gradients of pooled rows are waited for the wires carry buckets: what travels 2 is not exposed for 5.
    assert {name: each[0] for name, each in done.waited.items()} == pytest.approx(
        {"ranks": 0.0, "pooled": 2.0, "indices": 0.0, "reduced": 4.0}
    )


def test_slow_and_small_ranks_get_fewer_tables() -> None:
    tables = tuple(
        EmbeddingTable(name=f"t{k}", rows=2_000_000, dim=128, pooling=20, ways=("table",)) for k in range(16)
    )
    question = TablesQuestion(tables=tables, on="dgx-h100", devices=8, batch=16384)
    alike = plan_tables(question)
    slow = plan_tables(replace(question, conditions=parse_conditions(slow=["0=0.5"])))
    other = plan_tables(replace(question, conditions=parse_conditions(slow=["4-7=a100-sxm-40gb"])))

    def on(answer: TablesAnswer, *ranks: int) -> int:
        return sum(placed.places[0] in ranks for placed in answer.plan)

    assert on(alike, 0) == 2
    assert on(slow, 0) == 1
    assert on(other, 4, 5, 6, 7) < on(other, 0, 1, 2, 3)
    assert alike.step.step_s < min(slow.step.step_s, other.step.step_s)


def test_memory_of_the_smallest_rank_is_heeded() -> None:
    tables = tuple(EmbeddingTable(name=f"t{k}", rows=60_000_000, dim=128, ways=("table",)) for k in range(4))
    question = TablesQuestion(tables=tables, on="dgx-h100", devices=4, batch=4096)
    small = replace(question, conditions=parse_conditions(slow=["3=v100-sxm2-16gb"]))
    assert plan_tables(question).step.step_s > 0
    placed = plan_tables(replace(small, tables=tables[:3])).plan
    assert 3 not in {place for each in placed for place in each.places}
    with pytest.raises(MeshcastError, match="the fullest of 4 devices"):
        plan_tables(replace(small, tables=tuple(replace(each, rows=130_000_000) for each in tables)))


def test_of_many_tables_light_ones_are_not_cut() -> None:
    """One heavy table among 250: it is tried in every way, the others whole or on all ranks; no baseline is faster."""
    heavy = EmbeddingTable(name="heavy", rows=10**7, dim=128, pooling=400.0)
    light = [EmbeddingTable(name=f"light {n}", rows=10**6, dim=64, pooling=1.0) for n in range(250)]
    question = TablesQuestion(tables=(heavy, *light), on="dgx-h100", devices=8, batch=8 * 2048)
    problem = problem_of(question)
    assert problem.tried[0] == problem.options[0]
    assert {way.way for ways in problem.tried[1:] for way in ways} == {"table"}
    assert {way.way for way in problem.options[1]} > {"table"}
    found = search(problem)
    assert found.seconds <= min(seconds for _, seconds in found.baselines.values())
    assert found.plan[0].sharding.way != "table"
