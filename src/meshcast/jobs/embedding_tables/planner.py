"""Sharing tables out: the greedy ways that are used today, and a search that starts from the best of them.

Baselines, each placing the heaviest first on the rank that has least of the same measure so far:
- size: whole tables by their bytes;
- look-ups: whole tables by look-ups times dimension, what a look-up kernel moves;
- max-degree: every table cut into as many columns as it can be, by look-ups times dimension;
- row-wise: every table's rows over all ranks.

The search takes the best few of these, of the heaviest tables cut and the others whole, and, where tables are not many, of
tables put one by one where the step is shortest then; tables of the slowest rank are tried in every other way and place; and
some tables at a time are taken out and put back, heaviest first. The formula of `step` guides it; what it ends with and the
baselines are then followed rank by rank (`simulated`), and the fastest is the answer, so that no baseline is ever better. It
draws from a fixed seed, and its length is counted in tries, so that its answer is always the same.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.base import told_each
from meshcast.jobs.embedding_tables.placing import MANY_TABLES, PlacedTable, ShardingProblem
from meshcast.jobs.embedding_tables.sharding import Sharding
from meshcast.jobs.embedding_tables.step import LOADS

Floats = npt.NDArray[np.float64]
PlacedTables = list[PlacedTable]
TRIES, TRIES_A_TABLE = 4000, 200  # of one table in one way, beside the first pass over all tables
WHOLE = Sharding(way="table")
STARTS, STARTS_OF_MANY = 3, 1
NO_FIT = 1e6  # seconds: steps of plans that do not fit take longer


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSharding:
    """The plan of a search, the baselines that it started from, with the seconds of each, followed rank by rank."""

    plan: tuple[PlacedTable, ...]
    seconds: float
    baselines: dict[str, tuple[tuple[PlacedTable, ...], float]]

    @property
    def fits(self) -> bool:
        """Whether the plan is within the ranks' memory."""
        return self.seconds < NO_FIT


def search(problem: ShardingProblem, *, tries: int | None = None, seed: int = 0) -> FoundSharding:
    """The fastest plan that was found, with so many tries; more for more tables unless told."""
    tries = min(TRIES, TRIES_A_TABLE * len(problem.tables)) if tries is None else tries
    plans = {name: make(problem) for name, make in BASELINES.items()}
    baselines = {name: (tuple(plan), problem.simulated(plan)) for name, plan in plans.items()}
    # Of many tables one at a time ends far behind the baselines (by 10 to 70 % of 300 to 1,000 tables), and takes longest.
    single = [_one_by_one(problem)] if len(problem.tables) <= MANY_TABLES else []
    starts = sorted([*plans.values(), *single, *_mixed(problem)], key=problem.step)
    found = [*plans.values(), starts[0]]
    chosen = _unlike(starts)[: STARTS if len(problem.tables) <= MANY_TABLES else STARTS_OF_MANY]
    for start in told_each(chosen, len(chosen), "plans improved"):
        state = _State(problem, start)
        state.improve(tries // (2 * STARTS))
        state.rebuild(tries // (2 * STARTS), random.Random(seed))
        state.improve(tries // (4 * STARTS))
        found.append(state.plan)
    best = min(found, key=problem.simulated)
    return FoundSharding(plan=tuple(best), seconds=problem.simulated(best), baselines=baselines)


def timed(problem: ShardingProblem, plan: Sequence[PlacedTable]) -> FoundSharding:
    """A plan that is given; nothing is searched for, and nothing held against it."""
    return FoundSharding(plan=tuple(plan), seconds=problem.simulated(plan), baselines={})


def _unlike(plans: Sequence[PlacedTables]) -> list[PlacedTables]:
    """Plans that cut tables differently, in order."""
    ways = {tuple(placed.sharding for placed in plan): plan for plan in reversed(plans)}
    return list(reversed(ways.values()))


def _mixed(problem: ShardingProblem) -> Iterator[PlacedTables]:
    """The heaviest tables cut one way, the others whole or, where small, on all ranks; by their seconds, heaviest first."""
    weights = list(problem.weights)
    order = sorted(range(len(weights)), key=lambda each: -weights[each])
    data, most = Sharding(way="data"), min(len(order), 4 * problem.ranks.devices)
    every = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128) if len(order) <= MANY_TABLES else (0, 16, 64)
    counts = sorted({min(k, most) for k in every})
    for heavy, cut, shared in itertools.product(counts, ("row", "column", "table-row"), (False, True)):
        if not heavy and cut != "row":
            continue
        plan: dict[int, PlacedTable] = {}
        totals = np.zeros(problem.ranks.devices)
        for place, table in enumerate(order):
            ways = problem.options[table]
            small = data if shared and data in ways else WHOLE if WHOLE in ways else ways[0]
            way = max((each for each in ways if each.way == cut), key=lambda each: each.columns, default=small)
            plan[table] = _lightest(problem, totals, weights[table], way if place < heavy else small)
        yield [plan[table] for table in range(len(plan))]


def _lightest(problem: ShardingProblem, totals: Floats, weight: float, way: Sharding) -> PlacedTable:
    """A table where there is least so far; its weight is added there."""
    if way.way in ("row", "data"):
        totals += weight / len(totals)
        return PlacedTable(sharding=way)
    node = problem.ranks.node if way.way in ("table-row", "grid") else 1
    held = totals.reshape(-1, node).max(axis=1)
    spots = np.argsort(held, kind="stable")[: way.columns]
    for spot in spots:
        totals[spot * node : (spot + 1) * node] += weight / way.columns / node
    return PlacedTable(sharding=way, places=tuple(sorted(spots.tolist())))


def _by_table(measure: Callable[[ShardingProblem, int], float]) -> Callable[[ShardingProblem], PlacedTables]:
    def place(problem: ShardingProblem) -> PlacedTables:
        weights = [measure(problem, table) for table in range(len(problem.tables))]
        totals = np.zeros(problem.ranks.devices)
        plan: PlacedTables = [PlacedTable(sharding=WHOLE)] * len(weights)
        for table in sorted(range(len(weights)), key=lambda each: -weights[each]):
            rank = int(totals.argmin())
            totals[rank] += weights[table]
            plan[table] = PlacedTable(sharding=WHOLE, places=(rank,))
        return _allowed(problem, plan)

    return place


def _max_degree(problem: ShardingProblem) -> PlacedTables:
    totals = np.zeros(problem.ranks.devices)
    plan: PlacedTables = []
    for ways in problem.options:
        most = max(
            (way for way in ways if way.way == "column"), key=lambda way: way.columns, default=Sharding(way="table")
        )
        plan.append(PlacedTable(sharding=most))
    for table in sorted(range(len(plan)), key=lambda each: -_moved(problem, each)):
        way = plan[table].sharding
        ranks = np.argsort(totals, kind="stable")[: way.columns]
        totals[ranks] += _moved(problem, table) / way.columns
        plan[table] = PlacedTable(sharding=way, places=tuple(sorted(int(rank) for rank in ranks)))
    return _allowed(problem, plan)


def _row_wise(problem: ShardingProblem) -> PlacedTables:
    row = Sharding(way="row")
    plan = [
        PlacedTable(sharding=row if row in ways else Sharding(way="table"), places=() if row in ways else (0,))
        for ways in problem.options
    ]
    return _allowed(problem, plan)


def _allowed(problem: ShardingProblem, plan: PlacedTables) -> PlacedTables:
    """The plan, with tables that may not take their way put the first way that they may."""
    kept = list(plan)
    for table, placed in enumerate(plan):
        if placed.sharding not in problem.options[table]:
            way = problem.options[table][0]
            spots = problem.spots(way)
            places = tuple((table + k) % spots for k in range(way.columns)) if way.way not in ("row", "data") else ()
            kept[table] = PlacedTable(sharding=way, places=places)
    return kept


def _moved(problem: ShardingProblem, table: int) -> float:
    each = problem.tables[table]
    return each.pooling * each.dim


BASELINES: dict[str, Callable[[ShardingProblem], PlacedTables]] = {
    "size": _by_table(lambda problem, table: problem.tables[table].bytes),
    "look-ups": _by_table(_moved),
    "max-degree": _max_degree,
    "row-wise": _row_wise,
}


def _one_by_one(problem: ShardingProblem) -> PlacedTables:
    """Tables, the heaviest first, each in the way and at the place that lengthen the step least."""
    load, reduced = np.zeros((LOADS, problem.ranks.devices)), 0.0
    plan: dict[int, PlacedTable] = {}
    for table in sorted(range(len(problem.tables)), key=lambda each: -problem.weights[each]):
        plan[table], _ = _best(problem, load, reduced, table)
        reduced += problem.put(load, table, plan[table])
    return [plan[table] for table in range(len(plan))]


def _best(problem: ShardingProblem, load: Floats, reduced: float, table: int) -> tuple[PlacedTable, float]:
    """The way and place of one table with the shortest step; of equal ones that with the least work in all."""
    best: tuple[float, float, PlacedTable] | None = None
    for sharding in problem.tried[table]:
        placed, known = problem.best_spots(load, reduced, table, sharding)
        if known is None:
            trial = load.copy()
            more = problem.put(trial, table, placed)
            known = float(problem.judged(trial.max(axis=1, keepdims=True), reduced + more)[0])
        seconds, work = known, problem.work_in_all(table, placed)
        if best is None or (seconds * (1 + 1e-9), work) < (best[0], best[1]) or seconds < best[0] * (1 - 1e-9):
            best = (seconds, work, placed)
    assert best is not None
    return best[2], best[0]


class _State:
    """A plan with its loads, changed in place."""

    def __init__(self, problem: ShardingProblem, plan: Sequence[PlacedTable]) -> None:
        self.problem, self.plan = problem, list(plan)
        self.load, self.reduced = problem.loaded(plan)
        self.seconds = problem.step(plan)

    def improve(self, tries: int) -> None:
        """Tries tables of the slowest ranks in other ways and places, until none helps."""
        while tries > 0:
            better = False
            for table in self._slowest():
                tries -= len(self.problem.tried[table])
                if self._replace([table]):
                    better = True
                    break
                if tries <= 0:
                    return
            if not better:
                return

    def rebuild(self, tries: int, draw: random.Random) -> None:
        """Takes a few tables out, one of the slowest rank among them, and puts them back."""
        count = len(self.plan)
        if count < 2:
            return
        while tries > 0:
            slow = self._slowest()
            some = {draw.choice(slow), *draw.sample(range(count), min(count - 1, draw.randint(1, 5)))}
            tries -= sum(len(self.problem.tried[table]) for table in some)
            self._replace(sorted(some, key=lambda each: -self.problem.weights[each]))

    def _slowest(self) -> list[int]:
        """Tables with a part on a rank that has most of something, the heaviest first."""
        ranks = set(np.argmax(self.load, axis=1).tolist())
        nodes = {rank // self.problem.ranks.node for rank in ranks}
        found = [
            table
            for table, placed in enumerate(self.plan)
            if not placed.places
            or (ranks if placed.sharding.way in ("table", "column") else nodes) & set(placed.places)
        ]
        return sorted(found, key=lambda each: -self.problem.weights[each])

    def _replace(self, tables: Sequence[int]) -> bool:
        """Whether some tables taken out and put back one by one made the step shorter; else all is as it was."""
        problem, load, reduced = self.problem, self.load.copy(), self.reduced
        for table in tables:
            reduced += problem.put(load, table, self.plan[table], -1.0)
        new: dict[int, PlacedTable] = {}
        for table in tables:
            new[table], _ = _best(problem, load, reduced, table)
            reduced += problem.put(load, table, new[table])
        seconds = float(problem.judged(load.max(axis=1, keepdims=True), reduced)[0])
        if seconds >= self.seconds * (1 - 1e-7):
            return False
        for table, placed in new.items():
            self.plan[table] = placed
        self.load, self.reduced, self.seconds = load, reduced, seconds
        return True
