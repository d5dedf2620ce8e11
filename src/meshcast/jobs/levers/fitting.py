"""What would make it fit: changes that need less memory, predicted; where none is enough alone, the best with others on top."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from meshcast.base import MeshcastError, aside
from meshcast.jobs.levers.candidate import Candidate, Question, by_promise
from meshcast.jobs.levers.plans import planned
from meshcast.jobs.planned.memory_parts import memory_parts
from meshcast.options import Options
from meshcast.results import Fix, Prediction
from meshcast.zoo import PLAN_FLAG, SERVE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A question on the way: what it was asked with, by which changes and flags it differs from the first one."""

    question: Question
    changes: tuple[tuple[str, str], ...] = ()  # each with the name of its flag
    flags: tuple[str, ...] = ()

    @property
    def demand(self) -> float:
        """Bytes that a device needs."""
        problem = self.question.prediction.infeasible
        return problem.demand if problem is not None else float(self.question.prediction.memory.peak)

    @property
    def fix(self) -> Fix:
        """The change as an infeasible prediction lists it."""
        fits = self.question.prediction.feasible
        change = ", ".join(change for _, change in self.changes)
        return Fix(change=change, flag=" ".join(self.flags), demand=self.demand, fits=fits)

    def changed(self, candidate: Candidate, question: Question) -> _Step:
        """The next step: a flag that is there already is written once, and a setting says its last value."""
        name = _flag_name(candidate.flag)
        flags = (*(flag for flag in self.flags if _flag_name(flag) != name), candidate.flag)
        told = self.changes if name == PLAN_FLAG else tuple(each for each in self.changes if each[0] != name)
        return _Step(question=question, changes=(*told, (name, candidate.change)), flags=flags)


def _flag_name(flag: str) -> str:
    """`--plan`, or of settings `--set NAME`."""
    return flag.partition("=")[0] if flag.startswith("--set") else flag.partition(" ")[0]


def with_fixes(question: Question, again: Callable[[Options], Question], limit: int) -> Prediction:
    """An infeasible prediction with changes that were predicted, at most `limit` of them; those that are enough come first.

    Args:
        question: The prediction and what it was asked with.
        again: The same target asked with other options.
        limit: How many predictions may be made.
    """
    problem = question.prediction.infeasible
    assert problem is not None
    best = _Step(question=question)
    tried: list[_Step] = []
    while len(tried) < limit:
        now = _answers(best, again, limit - len(tried))
        tried += now
        smallest = min(now, key=lambda step: step.demand, default=best)
        if smallest.demand >= best.demand or any(step.question.prediction.feasible for step in now):
            break
        best = smallest
    fixes = sorted((step.fix for step in tried if step.demand < problem.demand), key=lambda fix: not fix.fits)
    return replace(question.prediction, infeasible=replace(problem, fixes=tuple(fixes)))


def _answers(step: _Step, again: Callable[[Options], Question], limit: int) -> list[_Step]:
    """A step further in each direction that there is, so far as the budget goes."""
    found: list[_Step] = []
    for candidate in _candidates(step.question):
        if len(found) == limit:
            break
        try:
            with aside(f"what would make it fit: {len(found)} of {limit} changes tried"):
                found.append(step.changed(candidate, again(candidate.options.having(levers=False))))
        except MeshcastError:  # the plan does not divide the model, the batch or the devices
            continue
    return found


def _candidates(question: Question) -> Sequence[Candidate]:
    """Changes that need less memory, those of the largest part first; of programs there are none that a flag makes."""
    if question.asked is None:
        return []
    return by_promise(_of_plan(question) if question.asked.plan is not None else _of_settings(question))


def _of_plan(question: Question) -> Iterator[Candidate]:
    asked = question.asked
    assert asked is not None
    assert asked.plan is not None
    peak = max(1, question.prediction.memory.peak)
    mode = (
        {**question.options.program.settings, "mode": "prefill"}
        if asked.mode == SERVE
        else question.options.program.settings
    )
    options = question.options.having(settings=mode)
    parts = memory_parts(question.prediction, asked.builder, asked.plan, options, question.cluster.device)
    for _, size, ways in parts:
        for way in ways:
            if way.keys and (found := planned(question, way.keys)) is not None:
                yield replace(found, bound=size / peak)
    yield from _smaller(question)


def _of_settings(question: Question) -> Iterator[Candidate]:
    asked = question.asked
    assert asked is not None
    yield from _shared_out(question)
    memory, now = question.prediction.memory, asked.values()
    activations = memory.temporaries / max(1, memory.peak)
    for change, name, value, possible in (
        ("recompute everything", "remat", "full", now.get("remat") != "whole"),
        ("fused attention", "attention", "flash", not question.unfused),
        ("twice the microbatches", "accumulate", 2 * int(now.get("accumulate") or 1), True),
        (
            "the optimizer's state shared out over replicas",
            "zero",
            2,
            bool((question.options.program.mesh or {}).get("data")),
        ),
    ):
        if name in now and now[name] != value and possible:
            options = question.with_setting(name, value)
            yield Candidate(change=change, flag=f"--set {name}={value}", options=options, bound=activations, kind=name)
    yield from _smaller(question)


def _shared_out(question: Question) -> Iterator[Candidate]:
    """A model that is whole on one device, shared out over so many that its memory would do, and twice as many."""
    asked, problem = question.asked, question.prediction.infeasible
    assert asked is not None
    assert problem is not None
    if question.prediction.devices > 1 or question.options.program.mesh:
        return
    least = 2 ** max(1, math.ceil(math.log2(problem.demand / problem.bound)))
    batch = asked.values().get("batch")
    for devices in (least, 2 * least):
        plan, options, more = f"tp={devices}", question.options, ""
        if asked.mode == "train" and isinstance(batch, int):
            plan = f"fsdp={devices}"
            if batch % devices:  # a sequence for each of them at least
                options, more = question.with_setting("batch", devices), f" --set batch={devices}"
        yield Candidate(
            change=f"shared out over {devices} devices" + (f", a batch of {devices}" if more else ""),
            flag=f"--plan {plan}{more}",
            options=options.changed({"plan": plan}, where="levers"),
            bound=2.0 if devices == least else 1.0,
            kind=f"over {devices} devices",
        )


def _smaller(question: Question) -> Iterator[Candidate]:
    """A smaller batch: the last resort, as it is other work."""
    asked = question.asked
    assert asked is not None
    batch = asked.values().get("batch")
    if isinstance(batch, int) and batch % 2 == 0 and (asked.plan is None or asked.plan.microbatches is None):
        options = question.with_setting("batch", batch // 2)
        yield Candidate(
            change=f"a batch of {batch // 2}",
            flag=f"--set batch={batch // 2}",
            options=options,
            bound=0.01,
            kind="batch",
        )
