"""What if the hardware had other numbers: each change that is asked for, alone and all of a question together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from meshcast.base import UsageError
from meshcast.hardware import named_with_changes, separate_changes
from meshcast.jobs.levers import Question
from meshcast.options import Options
from meshcast.results import Prediction, WhatIf

Again = Callable[[Options], Question]


def with_what_ifs(question: Question, again: Again) -> Prediction:
    """The prediction with what the changes of the hardware give that were asked for.

    Args:
        question: The prediction and what it was asked with.
        again: The same target asked with other options.

    Raises:
        UsageError: There is no such number to change, or the hardware has no name.
    """
    options = question.options
    if not isinstance(options.on, str):
        raise UsageError(
            "changes are made to hardware that has a name or a file",
            where="--what-if",
            fix="give --on a name or a file",
        )
    # All names are made before anything is predicted, so that a mistake in the last does not cost the first.
    asked = [(change, named_with_changes(options.on, question.cluster, change)) for change in _sets(options.what_if)]
    found = tuple(
        _what_if(question.prediction, change, on, again(options.changed({"on": on}, where="--what-if")))
        for change, on in asked
    )
    return replace(question.prediction, what_ifs=found)


def _sets(asked: tuple[str, ...]) -> Iterator[str]:
    """Every change of a question by itself, then all of it together."""
    for text in asked:
        changes = separate_changes(text)
        yield from changes
        if len(changes) > 1:
            yield ",".join(changes)


def _what_if(now: Prediction, change: str, on: str, other: Question) -> WhatIf:
    then = other.prediction
    both = now.step_time_s is not None and then.step_time_s
    return WhatIf(
        change=change,
        on=on,
        feasible=then.feasible,
        step_time_s=then.step_time_s,
        speedup=now.step_time_s / then.step_time_s if both and now.step_time_s and then.step_time_s else None,
        throughput_per_s=then.throughput.per_s if then.throughput is not None and then.feasible else None,
        energy_j=then.energy_j,
        mfu=then.mfu,
    )
