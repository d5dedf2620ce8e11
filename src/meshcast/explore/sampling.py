"""Samples of spaces that are too large to walk: Optuna's TPE, or NSGA-II for several objectives (the extra `explore`).

Values of an axis are told by their places, so that samplers know which are neighbours; plans by their keys, one after the
other, each by a share of the values that are left to it: whatever is drawn is a plan. Trials are asked for in rounds, whatever
the engine, and the sampler starts from a fixed seed: the same space has the same trials.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshcast.base import UnsupportedError, how_to_install, tell
from meshcast.explore.bounding import family_of
from meshcast.explore.engines import Engine
from meshcast.explore.measures import Constraints, Known, Objective
from meshcast.explore.point import Outcome
from meshcast.explore.search import ROUND, Found, Tally
from meshcast.explore.space import Combination, Space
from meshcast.explore.work import SearchWork
from meshcast.zoo import Plan

TRIALS = 200
SEED = 0
MISSED = 20  # draws without a new point, for each trial
_KEYS = (
    "pp",
    "tp",
    "cp",
    "ep",
    "fsdp",
    "mbs",
    "vp",
    "schedule",
    "remat",
    "sp",
    "zero",
    "precision",
    "offload",
    "gradients",
)


@dataclass(kw_only=True)
class Sampled:
    """A search by samples.

    Attributes:
        space: The space.
        engine: Who predicts.
        objectives: What is wanted.
        constraints: What a point must keep to.
        known_of: What is known of a combination's points beforehand.
        sampler: `tpe` or `nsga2`.
        trials: Points to ask for.
        earlier: Outcomes that are there already.
        tally: How far it has come.
    """

    space: Space
    engine: Engine
    objectives: Sequence[Objective]
    constraints: Constraints
    known_of: Callable[[Combination], Known]
    sampler: str = "tpe"
    trials: int = TRIALS
    earlier: Mapping[int, Outcome] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    _keys: list[str] = field(default_factory=list)

    def run(self, record: Callable[[Found], None]) -> None:
        """Predicts as many points as there are trials, each once, and tells each outcome."""
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        samplers = {"tpe": optuna.samplers.TPESampler, "nsga2": optuna.samplers.NSGAIISampler}
        study = optuna.create_study(
            directions=["minimize"] * len(self.objectives), sampler=samplers[self.sampler](seed=SEED)
        )
        listed = [(combination, list(self.space.plans_of(combination) or [None])) for combination in self.space.walk()]
        firsts = [0]
        for _, plans in listed:
            firsts.append(firsts[-1] + len(plans))
        self.tally.space = firsts[-1]
        self._keys = [
            key for key in _KEYS if len({str(getattr(plan, key)) for _, plans in listed for plan in plans if plan}) > 1
        ]
        done: dict[int, Outcome] = {}
        missed = 0
        while len(done) < min(self.trials, self.tally.space) and missed < MISSED * self.trials:
            asked: list[tuple[Any, int, SearchWork, Combination]] = []
            while len(asked) < ROUND and missed < MISSED * self.trials:
                trial = study.ask()
                number = self._number(trial, listed, firsts)
                if number is None or number in done or any(number == other for _, other, _, _ in asked):
                    missed += 1
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                    continue
                place = bisect.bisect_right(firsts, number) - 1
                combination, plans = listed[place]
                plan = plans[number - firsts[place]]
                point = combination.point(number, plan)
                work = SearchWork(kind="point", point=point, family=family_of(point.target, plan, point.asked))
                asked.append((trial, number, work, combination))
                if len(done) + len(asked) >= self.trials:
                    break
            fresh = [work for _, number, work, _ in asked if number not in self.earlier]
            answers = {fresh[i].point.number: answer for i, answer in self.engine.answers(fresh)}
            for trial, number, work, combination in asked:
                outcome = self.earlier.get(number) or answers[number]
                assert isinstance(outcome, Outcome)
                done[number] = outcome
                self._take(study, trial, work, combination, outcome, record, optuna)
            tell(f"{self.tally.evaluated} of {self.trials} trials", done=self.tally.evaluated, total=self.trials)

    def _number(self, trial: Any, listed: list[tuple[Combination, list[Any]]], firsts: list[int]) -> int | None:
        """The number of the point that a trial stands for; None where its combination has no plan."""
        place = 0
        for axis in self.space.axes:
            place = place * len(axis.values) + trial.suggest_int(axis.name, 0, len(axis.values) - 1)
        plans: list[Plan] = listed[place][1]
        if self.space.plans is None:
            return firsts[place]
        if not plans:
            return None
        left = list(enumerate(plans))
        for key in self._keys:
            values = sorted({getattr(plan, key) for _, plan in left}, key=_rank)
            place_of = trial.suggest_float(key, 0.0, 1.0)
            chosen = values[min(int(place_of * len(values)), len(values) - 1)]
            left = [(number, plan) for number, plan in left if getattr(plan, key) == chosen]
        return firsts[place] + left[0][0]

    def _take(
        self, study: Any, trial: Any, work: SearchWork, combination: Combination, outcome: Outcome,
        record: Callable[[Found], None], optuna: Any,
    ) -> None:  # fmt: skip
        known = self.known_of(combination)
        allowed = outcome.answered and self.constraints.allow(outcome)
        self.tally.note(outcome, allowed=allowed)
        if allowed:
            study.tell(trial, [objective.of(outcome, known) for objective in self.objectives])
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        record(Found(point=work.point, outcome=outcome, known=known, values=combination.values, allowed=allowed))


def _rank(value: Any) -> tuple[bool, float, str]:
    """Numbers in their order, then words."""
    number = isinstance(value, (int, float))
    return not number, float(value) if number else 0.0, str(value)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UnsupportedError("Optuna is not installed", where="search", fix=how_to_install("explore")) from None
    return optuna
