"""Every point of a space, one after the other as workers become free: nothing is held but what the answer needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from meshcast.base import tell
from meshcast.explore.bounding import family_of
from meshcast.explore.engines import Engine
from meshcast.explore.measures import Constraints, Known
from meshcast.explore.point import Outcome
from meshcast.explore.search import Found, Tally
from meshcast.explore.space import Combination, Space, parsed_plan
from meshcast.explore.work import SearchWork
from meshcast.zoo import Plan

SAID_EVERY = 100


@dataclass(kw_only=True)
class Sweep:
    """All points, in the order of the space as they are given out; outcomes come as they are finished.

    Attributes:
        space: The space.
        engine: Who predicts.
        constraints: What a point must keep to.
        known_of: What is known of a combination's points beforehand.
        earlier: Outcomes that are there already, by the numbers of their points.
        tally: How far it has come.
    """

    space: Space
    engine: Engine
    constraints: Constraints
    known_of: Callable[[Combination], Known]
    earlier: Mapping[int, Outcome] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def run(self, record: Callable[[Found], None]) -> None:
        """Predicts every point that is not there already, and tells each outcome as it comes."""
        waiting: dict[int, tuple[SearchWork, Combination, Known]] = {}

        def works() -> Iterator[SearchWork]:
            given = 0
            for number, (combination, known, plan) in enumerate(self._walk()):
                self.tally.space += 1
                point = combination.point(number, plan)
                if number in self.earlier:
                    self._take(record, SearchWork(kind="point", point=point), combination, known, self.earlier[number])
                    continue
                shared = plan or (parsed_plan(point.plan) if point.plan is not None else None)
                work = SearchWork(kind="point", point=point, family=family_of(point.target, shared, point.asked))
                waiting[given] = work, combination, known
                given += 1
                yield work

        for number, answer in self.engine.answers(works()):
            assert isinstance(answer, Outcome)
            self._take(record, *waiting.pop(number), answer)
            if self.tally.evaluated % SAID_EVERY == 0:
                tell(f"{self.tally.evaluated} points")

    def _walk(self) -> Iterator[tuple[Combination, Known, Plan | None]]:
        for combination in self.space.walk():
            known = self.known_of(combination)
            plans = self.space.plans_of(combination)
            if plans is None:
                yield combination, known, None
                continue
            for plan in plans:
                yield combination, known, plan

    def _take(
        self,
        record: Callable[[Found], None],
        work: SearchWork,
        combination: Combination,
        known: Known,
        outcome: Outcome,
    ) -> None:
        allowed = outcome.answered and self.constraints.allow(outcome)
        self.tally.note(outcome, allowed=allowed)
        record(Found(point=work.point, outcome=outcome, known=known, values=combination.values, allowed=allowed))
