"""What if the hardware had other numbers: each change that is asked for, alone and all of a question together.

Of a compiled program both sides of a comparison have modelled kernels, as with what would help (`jobs/levers/trying.py`): the
change is theirs, the step that it is told of the compiled one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from meshcast.base import MeshcastError, UsageError, aside
from meshcast.hardware import EXAMPLE_CHANGES, VALUE_OF_A_FLAG, Cluster, named_with_changes, resolve, separate_changes
from meshcast.jobs.levers import Question, comparable
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
    asked = [(change, _named(options.on, question.cluster, change)) for change in _sets(options.what_if)]
    before = comparable(question, again)
    found = []
    for number, (change, on) in enumerate(asked):
        with aside(f"what if: {number} of {len(asked)} changes predicted"):
            other = again(before.options.changed({"on": on}, where="--what-if"))
        found.append(_what_if(before, change, on, other))
    step, modelled = question.prediction.step_time_s, before.prediction.step_time_s
    if before is not question and step and modelled:
        found = [_scaled(each, step / modelled) for each in found]
    return replace(question.prediction, what_ifs=tuple(found))


def _named(on: str, cluster: Cluster, change: str) -> str:
    """The name of the hardware with a change, which is looked up once.

    Raises:
        UsageError: The change is none, by what says it.
    """
    named = named_with_changes(on, cluster, change)
    try:
        resolve(named)
    except MeshcastError as error:
        fix = EXAMPLE_CHANGES if error.fix == VALUE_OF_A_FLAG else error.fix
        raise UsageError(error.message, where="--what-if", fix=fix) from None
    return named


def _scaled(found: WhatIf, scale: float) -> WhatIf:
    """What is told of a step that takes `scale` as long as the one that the change was compared with."""

    def times(value: float | None, factor: float) -> float | None:
        return value * factor if value is not None else None

    return replace(
        found,
        step_time_s=times(found.step_time_s, scale),
        throughput_per_s=times(found.throughput_per_s, 1 / scale),
        energy_j=times(found.energy_j, scale),
        mfu=times(found.mfu, 1 / scale),
    )


def _sets(asked: tuple[str, ...]) -> Iterator[str]:
    """Every change of a question by itself, then all of it together."""
    for text in asked:
        changes = separate_changes(text)
        yield from changes
        if len(changes) > 1:
            yield ",".join(changes)


def _what_if(before: Question, change: str, on: str, other: Question) -> WhatIf:
    now, then = before.prediction.step_time_s, other.prediction
    return WhatIf(
        change=change,
        on=on,
        feasible=then.feasible,
        step_time_s=then.step_time_s,
        speedup=now / then.step_time_s if now and then.step_time_s else None,
        throughput_per_s=then.throughput.per_s if then.throughput is not None and then.feasible else None,
        energy_j=then.energy_j,
        mfu=then.mfu,
    )
