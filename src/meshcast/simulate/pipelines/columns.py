"""A schedule as columns: what every task is and waits for, and the waves in which all of them can be done.

Tasks are numbered stage by stage, in the order of each. A wave is what all stages can do next at once, one task each: what
a task waits for is in an earlier wave. Waves follow from the order alone, so that any costs can be put on them later, a
wave at a time (`simulation`): some `stages` tasks in every pass over arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshcast.base import UsageError
from meshcast.simulate.pipelines.schedule import PassWork, PipelineSchedule, Task

Integers = NDArray[np.int64]
WORKS = tuple(PassWork)
FORWARD, BACKWARD, WEIGHT = range(3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The tasks of a schedule.

    Attributes:
        bounds: Where each stage's tasks begin, and the end of the last one's.
        stage: Who does a task.
        work: What it is, a number in `WORKS`.
        chunk: The chunk of its stage.
        position: The part of the model that it is for.
        needs: The task at another position whose result it waits for; the number of tasks where it waits for none.
        receiver: The stage that its result is sent to; -1 where it stays on the stage.
        waves: Tasks of each wave, in order.
    """

    bounds: Integers
    stage: Integers
    work: Integers
    chunk: Integers
    position: Integers
    needs: Integers
    receiver: Integers
    waves: tuple[Integers, ...]

    def of_stage(self, stage: int) -> slice:
        """The numbers of a stage's tasks."""
        return slice(int(self.bounds[stage]), int(self.bounds[stage + 1]))


@lru_cache(maxsize=32)
def columns_of(schedule: PipelineSchedule) -> Columns:
    """The columns of a schedule, which are kept with it.

    Raises:
        UsageError: The orders wait for each other in a circle.
    """
    orders = schedule.orders
    numbers: dict[str, int] = {work: number for number, work in enumerate(WORKS)}
    bounds = np.cumsum([0, *(len(order) for order in orders)])
    total = int(bounds[-1])
    tasks = list(chain.from_iterable(orders))
    work = _integers([numbers[task[0]] for task in tasks])
    microbatch = _integers([task[1] for task in tasks])
    chunk = _integers([task[2] for task in tasks])
    stage = np.repeat(np.arange(schedule.stages), np.diff(bounds))
    table = [[schedule.position(s, c) for c in range(schedule.chunks)] for s in range(schedule.stages)]
    position = _integers(table).reshape(schedule.stages, schedule.chunks)[stage, chunk]
    last = schedule.positions - 1
    # Who does what: `total` is there from the start, what is before the first part, and `total + 1` is never done.
    doer = np.full((len(WORKS), last + 3, schedule.microbatches), total + 1)
    doer[FORWARD, 0] = total
    doer[work, position + 1, microbatch] = np.arange(total)
    # What a task needs of its own stage is done by the time the stage is free, if it comes first at all.
    own = np.select(
        [work == BACKWARD, work == WEIGHT],
        [doer[FORWARD, position + 1, microbatch], doer[BACKWARD, position + 1, microbatch]],
        total,
    )
    needs = np.select(
        [work == FORWARD, (work == BACKWARD) & (position < last)],
        [doer[FORWARD, position, microbatch], doer[BACKWARD, position + 2, microbatch]],
        total,
    )
    place = _integers([schedule.place(at)[0] for at in range(schedule.positions)])
    target = position + np.select([work == FORWARD, work == BACKWARD], [1, -1], 0)
    sent = (target != position) & (target >= 0) & (target <= last)
    receiver = np.where(sent, place[np.clip(target, 0, last)], -1)
    receiver[receiver == stage] = -1
    waves, reached, done = _waves(bounds, needs, own)
    if (reached < bounds[1:]).any():
        raise _stuck(schedule, reached, done[own])
    return Columns(
        bounds=bounds,
        stage=stage,
        work=work,
        chunk=chunk,
        position=position,
        needs=needs,
        receiver=receiver,
        waves=waves,
    )


def _integers(values: Sequence[Any]) -> Integers:
    return np.array(values, dtype=np.int64)


def _waves(
    bounds: Integers, needs: Integers, own: Integers
) -> tuple[tuple[Integers, ...], Integers, NDArray[np.bool_]]:
    """The waves, how far each stage has come by them, and what is done."""
    done = np.zeros(len(needs) + 2, dtype=bool)
    done[len(needs)] = True
    reached, ends = bounds[:-1].copy(), bounds[1:]
    waves: list[Integers] = []
    active = np.flatnonzero(reached < ends)
    while len(active):
        at = reached[active]
        ready = done[needs[at]] & done[own[at]]
        wave = at[ready]
        if not len(wave):
            break
        done[wave] = True
        waves.append(wave)
        reached[active[ready]] += 1
        active = active[reached[active] < ends[active]]
    return tuple(waves), reached, done


def _stuck(schedule: PipelineSchedule, reached: Integers, own_done: NDArray[np.bool_]) -> UsageError:
    """Who waits for what, when nobody can go on."""
    said: list[str] = []
    first = 0
    for stage, order in enumerate(schedule.orders):
        number = int(reached[stage])
        index, first = number - first, first + len(order)
        if index == len(order) or len(said) == 6:
            continue
        task = order[index]
        position = schedule.position(stage, task.chunk)
        if task.work is PassWork.FORWARD:
            holder, needed = schedule.place(position - 1), Task(PassWork.FORWARD, task.microbatch)
        elif task.work is PassWork.WEIGHT:
            holder, needed = (stage, task.chunk), Task(PassWork.BACKWARD, task.microbatch)
        elif not own_done[number]:
            holder, needed = (stage, task.chunk), Task(PassWork.FORWARD, task.microbatch)
        else:
            holder, needed = schedule.place(position + 1), Task(PassWork.BACKWARD, task.microbatch)
        said.append(f"stage {stage} at {task} waits for {needed._replace(chunk=holder[1])} of stage {holder[0]}")
    return UsageError(
        f"the schedule {schedule.name!r} deadlocks: " + "; ".join(said),
        where="schedule",
        fix="order the tasks so that no stages wait for each other in a circle",
    )
