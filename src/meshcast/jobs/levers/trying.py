"""Candidates are chosen by what they could save, and the few most promising ones predicted; what was predicted is told.

The budget counts predictions, not seconds, so that the answer is the same on every machine. Changes of a compiled program are
predicted with modelled kernels, the program as it is included: compiling each would take minutes, and two lowerings are not to be
compared. What a change saves then is the share of that, of the compiled step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from meshcast.base import MeshcastError, aside, piece
from meshcast.jobs.levers.candidate import Candidate, Question, by_promise
from meshcast.jobs.levers.fitting import with_fixes
from meshcast.jobs.levers.hardware import of_hardware
from meshcast.jobs.levers.models import of_model
from meshcast.jobs.levers.plans import of_plan
from meshcast.jobs.levers.running import of_running
from meshcast.options import Options
from meshcast.results import Lever, Prediction

TRIED = 6  # changes, unless another number is asked for
WORTH_SAYING = 0.01  # of the time for the same work: below it a change is not worth a line
_REFUSED = 3  # candidates that may turn out impossible, for each that is tried
Again = Callable[[Options], Question]


def how_many(levers: bool | int) -> int:
    """How many changes are predicted, as `Options.levers` says it: True stands for the usual number."""
    return TRIED if levers is True else int(levers)


def with_levers(question: Question, again: Again) -> Prediction:
    """The prediction with the changes that save most, best first; where it does not fit, with what would make it fit.

    Args:
        question: The prediction and what it was asked with.
        again: The same target asked with other options; it is not asked for levers of its own.
    """
    limit, timed = how_many(question.options.levers), question.prediction.timed
    if timed is None:
        return with_fixes(question, again, limit)
    asked = comparable(question, again) if limit else question
    found = [lever for candidate, other in _tried(asked, again, limit) if (lever := _lever(asked, candidate, other))]
    if asked is not question and asked.prediction.step_time_s:
        scale = timed.step_time_s / asked.prediction.step_time_s
        found = [_scaled(lever, scale) for lever in found]
    ranked = sorted(found, key=lambda lever: -lever.saved_share)
    return replace(question.prediction, timed=replace(timed, levers=tuple(ranked)))


def comparable(question: Question, again: Again) -> Question:
    """The question that changes are compared with: one that was compiled, answered with modelled kernels.

    It is the question itself where nothing was compiled, or where modelled kernels have no answer, or none that fits.
    """
    options = question.options
    if question.prediction.lowering != "compiled":
        return question
    fidelity = "auto" if options.estimate.fidelity == "compiled" else options.estimate.fidelity
    try:
        with aside("the same with modelled kernels"):
            found = again(options.having(lowering="modelled", fidelity=fidelity, levers=False))
    except MeshcastError:
        return question
    return found if found.prediction.step_time_s else question


def _scaled(lever: Lever, scale: float) -> Lever:
    """A lever with its times, and what is done in one, of a step that takes `scale` as long."""
    return replace(
        lever,
        step_time_s=lever.step_time_s * scale,
        saved_s=lever.saved_s * scale,
        throughput_per_s=lever.throughput_per_s / scale if lever.throughput_per_s is not None else None,
        request_time_s=lever.request_time_s * scale if lever.request_time_s is not None else None,
    )


def candidates(question: Question) -> list[Candidate]:
    """Every change that there is to try, the most promising first."""
    found = chain(of_model(question), of_plan(question), of_running(question), of_hardware(question))
    return by_promise(each for each in found if each.bound > WORTH_SAYING)


def _tried(question: Question, again: Again, limit: int) -> list[tuple[Candidate, Prediction]]:
    """The first candidates that have an answer; what the model, the plan or the device cannot have is passed over."""
    answered: list[tuple[Candidate, Prediction]] = []
    if limit < 1:
        return answered
    for candidate in candidates(question)[: _REFUSED * limit]:
        said = f"what would help: {len(answered)} of {limit} changes tried"
        try:
            with piece(said, done=1 + len(answered), total=1 + limit):  # the question itself was the first
                answered.append((candidate, again(candidate.options.having(levers=False)).prediction))
        except MeshcastError:
            continue
        if len(answered) == limit:
            break
    return answered


def _lever(question: Question, candidate: Candidate, other: Prediction) -> Lever | None:
    """What a candidate gives; None where it does not fit, or saves too little to be told."""
    now = question.prediction
    before, after = _seconds_of_work(now), _seconds_of_work(other)
    if not before or not after or other.step_time_s is None or now.step_time_s is None:
        return None
    saved = 1 - after / before
    if saved <= WORTH_SAYING:
        return None
    return Lever(
        change=candidate.change,
        flag=candidate.flag,
        step_time_s=other.step_time_s,
        saved_s=saved * (_request_s(now) or now.step_time_s),
        saved_share=saved,
        throughput_per_s=other.throughput.per_s if other.throughput is not None else None,
        request_time_s=_request_s(other),
    )


def _request_s(prediction: Prediction) -> float | None:
    """Seconds of a whole request: most of them may be the prompt's, which the step, a decoding one, does not show."""
    return prediction.serving.request_s if prediction.serving is not None else None


def _seconds_of_work(prediction: Prediction) -> float | None:
    """Seconds of a token, image or sample, of programs those of a step: what is compared where the batch may be another."""
    done = prediction.throughput
    return prediction.step_time_s if done is None else 1 / done.per_s
