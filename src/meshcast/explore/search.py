"""Best-first search with bounds: what cannot be among the best is not predicted, and what is found is what trying all would find.

Every point has a bound, a value that no objective of it falls below. The point with the lowest bound is looked at next: its bound
is made tighter, level by level (`bounds`), until it is either above the best that was found, or as tight as it gets; then
the point is predicted. The search ends when the lowest bound is not below the value of the last point that is asked for
(`top`). This is branch and bound with the bound as its order (Land and Doig 1960); as no bound is above what a prediction
says, the points that it returns are those of an exhaustive search.

Works are given out in rounds, whatever the engine: which points are predicted does not depend on who does it. The first round has
few points, the next ones as many as were predicted before them, up to `ROUND`: the first good step leaves out most of those
that a full round would have had predicted beside it.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.base import tell
from meshcast.explore.bounding import LEVELS, Bounder, family_of, work_key
from meshcast.explore.bounds import PlanBound
from meshcast.explore.engines import Engine
from meshcast.explore.measures import Constraints, Known, Objective
from meshcast.explore.pace import SAMPLED, SearchPace
from meshcast.explore.point import Outcome, Point
from meshcast.explore.space import Combination, Space
from meshcast.explore.tally import Tally as Tally
from meshcast.explore.work import SearchWork
from meshcast.jobs import LayersCost
from meshcast.zoo import Plan

ROUND = 16  # works that are given out together
FIRST = 2  # points among them, as long as none is known
HELD = 50_000  # points that are held at once
ROUNDING = 1e-9
COUNTED = 10_000  # points after which it is said how many were counted
_LOOKED_AT = 64  # points for each work of a round that may have to wait for what is being worked out already


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A point that was predicted.

    Attributes:
        point: The point.
        outcome: What came of it.
        known: What its objectives are counted with.
        values: Of the axes of its space.
        allowed: Whether it has a step and keeps to the constraints.
    """

    point: Point
    outcome: Outcome
    known: Known
    values: Mapping[str, Any]
    allowed: bool


@dataclass(kw_only=True)
class _Candidate:
    number: int
    bounder: Bounder
    plan: Plan
    level: int
    bound: PlanBound


Entry = tuple[float, int, _Candidate]  # by the least that the first objective can be, then by place in the space
KnownOf = Callable[[Combination], Known]
Record = Callable[[Found], None]


@dataclass(kw_only=True)
class BestFirst:
    """A search for the best points of a space with plans.

    Attributes:
        space: The space.
        engine: Who predicts.
        objectives: What is wanted: the first decides what is best, all together what is on the front.
        constraints: What a point must keep to.
        known_of: What is known of a combination's points before they are predicted.
        top: How many points are wanted, in each group.
        per: Names of axes whose values make groups of their own.
        earlier: Outcomes that are there already, by the numbers of their points.
        held: Points that are held at once.
        tally: How far it has come.
        left_out: Plans that were not predicted, with the last bound of each: as many as are held that cannot run, and that are
            no better.
    """

    space: Space
    engine: Engine
    objectives: Sequence[Objective]
    constraints: Constraints
    known_of: KnownOf
    top: int = 5
    per: tuple[str, ...] = ()
    earlier: Mapping[int, Outcome] = field(default_factory=dict)
    held: int = HELD
    tally: Tally = field(default_factory=Tally)
    left_out: list[tuple[Plan, PlanBound]] = field(default_factory=list)
    _layers: dict[str, LayersCost | None] = field(default_factory=dict)
    _best: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)
    _front: list[tuple[float, ...]] = field(default_factory=list)
    _listed: list[tuple[int, Bounder, Plan]] | None = None
    _ruled_out: int = 0
    _seen: int = 0
    _pace: SearchPace = field(default_factory=SearchPace)

    def run(self, record: Record) -> None:
        """Predicts what has to be predicted, and tells each outcome as it comes.

        Of a large space the `held` points with the lowest bounds are looked at first; then the space is walked again for those
        behind them, until none is left that could be among the best. What is held does not grow with the space.
        """
        self._pace.top = self.top
        self._count()
        cut: tuple[float, int] | None = None
        while True:
            heap, more = self._lowest(cut)
            if not heap:
                break
            cut = max((least, number) for least, number, _ in heap)
            self._seen += len(heap)
            self._search(heap, record)
            if not more:
                break
        self._listed = None
        self.tally.bounded = self.tally.space - self.tally.evaluated - self._ruled_out

    def _search(self, heap: list[Entry], record: Record) -> None:
        """Looks at points until none of them is left."""
        heapq.heapify(heap)
        while heap:
            works, waiting = self._round(heap, record)
            self._work(works, heap, record, waiting=waiting)
            for candidate in waiting:
                self._push(heap, candidate)

    def _walk(self) -> Iterator[tuple[int, Bounder, Plan]]:
        """Every point of the space, in its order."""
        number = 0
        for combination in self.space.walk():
            bounder = Bounder(combination=combination, known=self.known_of(combination), found=self._layers)
            for plan in self.space.plans_of(combination) or ():
                yield number, bounder, plan
                number += 1

    def _count(self) -> None:
        """Counts the points, and has the layers counted that their first bounds need; a small space is noted on the way."""
        wanted: dict[str, SearchWork] = {}
        listed: list[tuple[int, Bounder, Plan]] | None = []
        for number, bounder, plan in self._walk():
            self.tally.space = number + 1
            if number % COUNTED == 0:
                tell(f"{number:,} points counted")
            if listed is not None:
                listed.append((number, bounder, plan))
                if len(listed) > self.held:
                    listed = None
            work = bounder.wanted(plan, 0)
            if work is not None:
                wanted.setdefault(work_key(work), work)
        self._listed = listed
        self._pace.kinds = len(wanted) + len(self._later_kinds(listed or ()))
        self._probe(list(wanted.values()))

    def _later_kinds(self, listed: Sequence[tuple[int, Bounder, Plan]]) -> set[str]:
        """Works about layers that the tighter bounds may ask for, by some plans of the space where those are many."""
        some = listed[:: 1 + len(listed) // SAMPLED]
        works = (bounder.wanted(plan, level) for _, bounder, plan in some for level in range(1, LEVELS))
        return {work_key(work) for work in works if work is not None}

    def _behind(self, heap: Sequence[Entry]) -> int:
        """Points of a large space that are looked at once those that are held have been."""
        return max(self.tally.space - self._seen, 0) if len(heap) >= self.held else 0

    def _open(self, heap: Sequence[Entry]) -> float:
        """How many points may still be among the best by all that is known, told by some of them where they are many."""
        some = heap[:: 1 + len(heap) // SAMPLED]
        share = sum(self._is_open(candidate) for _, _, candidate in some) / len(some) if some else 0.0
        return share * (len(heap) + self._behind(heap))

    def _kinds_left(self, under_way: Sequence[_Candidate], heap: Sequence[Entry]) -> int:
        """Works about layers that bounds of points may still ask for: those of points that were predicted or beaten never are."""
        some = heap[:: 1 + len(heap) // SAMPLED]
        held = [*under_way, *(each for _, _, each in some if not self._beaten(each))]
        works = (each.bounder.wanted(each.plan, level) for each in held for level in range(each.level + 1, LEVELS))
        return len({key for work in works if work is not None and (key := work_key(work)) not in self._layers})

    def _is_open(self, candidate: _Candidate) -> bool:
        if self._beaten(candidate):
            return False
        tightest = candidate.bound.raised(candidate.bounder.bound(candidate.plan, LEVELS - 1))
        if self.constraints.rule_out(tightest, candidate.bounder.known):
            return False
        return not self._beaten(replace(candidate, bound=tightest))

    def _tell(self, open_points: float, layers: int = 0, points: int = 0) -> None:
        """Says how far the search is, with works of a round that are done and not counted yet."""
        layers, predicted = self.tally.probes + layers, self.tally.evaluated + points
        left = self._pace.left_s(
            layers=layers, predicted=self.tally.evaluated, open_points=open_points, under_way=points
        )
        least = self._pace.least_s(layers=layers, open_points=open_points)
        decided = self.tally.space - max(open_points - points, 0)
        words = f"{decided:,.0f} of {self.tally.space:,} points decided, {predicted:,} predicted"
        if layers < self._pace.kinds:  # what is counted first is what a narrow line keeps
            words = f"{layers:,} of {self._pace.kinds:,} kinds of layers, {words}"
        tell(
            words,
            done=self._pace.share(left),
            total=1,
            left_s=left if least is None else least,
            least=least is not None,
        )

    def _lowest(self, cut: tuple[float, int] | None) -> tuple[list[Entry], bool]:
        """The `held` points with the lowest first bounds behind `cut`, but for what cannot be wanted; whether there are more."""
        found: list[tuple[float, int, _Candidate]] = []  # the highest first
        more = False
        for number, bounder, plan in self._walk() if self._listed is None else self._listed:
            candidate = _Candidate(number=number, bounder=bounder, plan=plan, level=0, bound=bounder.bound(plan, 0))
            if self.constraints.rule_out(candidate.bound, bounder.known):
                if cut is None:
                    self._rule_out(candidate)
                continue
            least = self.objectives[0].least(candidate.bound, bounder.known)
            if (cut is not None and (least, number) <= cut) or (cut is not None and self._beaten(candidate)):
                continue
            entry = (-least, -number, candidate)
            if len(found) < self.held:
                heapq.heappush(found, entry)
            else:
                more = True
                heapq.heappushpop(found, entry)
        return [(-least, -number, candidate) for least, number, candidate in found], more

    def _rule_out(self, candidate: _Candidate) -> None:
        """Notes a point that cannot run, or not as the constraints ask."""
        self.tally.infeasible += 1
        self._ruled_out += 1
        if self._ruled_out <= self.held:
            self.left_out.append((candidate.plan, candidate.bound))

    def _push(self, heap: list[Entry], candidate: _Candidate) -> None:
        """Puts a point among those to look at, unless it cannot run."""
        known = candidate.bounder.known
        if self.constraints.rule_out(candidate.bound, known):
            self._rule_out(candidate)
            return
        heapq.heappush(heap, (self.objectives[0].least(candidate.bound, known), candidate.number, candidate))

    def _round(self, heap: list[Entry], record: Record) -> tuple[list[tuple[_Candidate, SearchWork]], list[_Candidate]]:
        """Works for one round, and points that wait for one of them."""
        works: list[tuple[_Candidate, SearchWork]] = []
        waiting: list[_Candidate] = []
        asked: set[str] = set()
        points, most = 0, max(FIRST, self.tally.evaluated)
        while heap and len(works) < ROUND and len(waiting) < _LOOKED_AT * ROUND:
            _, _, candidate = heapq.heappop(heap)
            if self._beaten(candidate):
                self.tally.bounded += 1
                if self.tally.bounded <= self.held:
                    self.left_out.append((candidate.plan, candidate.bound))
                continue
            work = self._next_work(candidate)
            if work is None:
                self._push(heap, candidate)
            elif work.kind == "point":
                earlier = self.earlier.get(candidate.number)
                if earlier is not None:
                    self._take(candidate, earlier, record)
                elif points == most:
                    self._push(heap, candidate)
                    break
                else:
                    points += 1
                    works.append((candidate, work))
            elif (key := work_key(work)) in asked:
                waiting.append(candidate)
            else:
                asked.add(key)
                works.append((candidate, work))
        return works, waiting

    def _next_work(self, candidate: _Candidate) -> SearchWork | None:
        """What is to be worked out next about a point; None where its bound was made tighter from what is known."""
        while candidate.level < LEVELS - 1:
            work = candidate.bounder.wanted(candidate.plan, candidate.level + 1)
            if work is not None and work_key(work) not in self._layers:
                return work
            candidate.level += 1
            tighter = candidate.bounder.bound(candidate.plan, candidate.level)
            if tighter != candidate.bound:
                candidate.bound = candidate.bound.raised(tighter)
                return None
        combination = candidate.bounder.combination
        point = combination.point(candidate.number, candidate.plan)
        family = family_of(point.target, candidate.plan, point.asked)
        return SearchWork(kind="point", point=point, family=family)

    def _work(
        self,
        works: list[tuple[_Candidate, SearchWork]],
        heap: list[Entry],
        record: Record,
        *,
        waiting: list[_Candidate],
    ) -> None:
        """Has the works of a round done, for which some points wait."""
        found: dict[int, Any] = {}
        done = {"layers": 0, "point": 0}
        began, still_open = self._pace.clock(), self._open(heap) + len(works) + len(waiting)
        self._pace.kinds = self.tally.probes + self._kinds_left([*(each for each, _ in works), *waiting], heap)
        self._tell(still_open)
        for number, answer in self.engine.answers([work for _, work in works]):
            found[number] = answer
            done[works[number][1].kind] += 1
            self._tell(still_open, done["layers"], done["point"])
        self._pace.note(layers=done["layers"], points=done["point"], seconds=self._pace.clock() - began)
        for number, (candidate, work) in enumerate(works):
            answer = found[number]
            if work.kind == "layers":
                self.tally.probes += 1
                self._layers[work_key(work)] = answer
                self._push(heap, candidate)
            else:
                self._take(candidate, answer, record)

    def _probe(self, works: list[SearchWork]) -> None:
        began = self._pace.clock()
        self._tell(self.tally.space)
        for done, (number, answer) in enumerate(self.engine.answers(works), start=1):
            assert not isinstance(answer, Outcome)
            self._layers[work_key(works[number])] = answer
            self._tell(self.tally.space, done)
        self._pace.note(layers=len(works), points=0, seconds=self._pace.clock() - began)
        self.tally.probes += len(works)

    def _take(self, candidate: _Candidate, outcome: Outcome, record: Record) -> None:
        """Notes what came of a point."""
        allowed = outcome.answered and self.constraints.allow(outcome)
        self.tally.note(outcome, allowed=allowed)
        if outcome.step_time_s is not None and outcome.step_time_s * (1 + ROUNDING) < candidate.bound.time_s:
            self.tally.below_bounds += 1
        combination, known = candidate.bounder.combination, candidate.bounder.known
        found = Found(
            point=combination.point(candidate.number, candidate.plan),
            outcome=outcome,
            known=known,
            values=combination.values,
            allowed=allowed,
        )
        if allowed:
            values = tuple(objective.of(outcome, known) for objective in self.objectives)
            bisect.insort(self._best.setdefault(self._group(combination), []), values[0])
            self._front.append(values)
        record(found)

    def _group(self, combination: Combination) -> tuple[Any, ...]:
        return tuple(combination.values.get(name) for name in self.per)

    def _beaten(self, candidate: _Candidate) -> bool:
        """Whether a point cannot be among the best of its group any more, nor on the front."""
        known = candidate.bounder.known
        best = self._best.get(self._group(candidate.bounder.combination), [])
        least = tuple(objective.least(candidate.bound, known) for objective in self.objectives)
        if len(best) < self.top or least[0] <= best[self.top - 1]:
            return False
        if len(self.objectives) == 1:
            return True
        return any(all(one <= other for one, other in zip(values, least, strict=True)) for values in self._front)
