"""What a pipeline's stages keep: activations of the microbatches in flight, beside weights and working memory.

A microbatch is in flight in a chunk from its forward pass until its backward pass, or its weights' gradient where that
is separate. With n_c microbatches of chunk c in flight while a task runs,

    memory = fixed + sum over chunks of (n_c saved_c + w_c weight_saved_c) + what the task itself works with

where w_c of them have come through their backward pass and wait for the weights' gradient only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshcast.simulate.pipelines.columns import BACKWARD, FORWARD, WEIGHT, WORKS, Integers, columns_of
from meshcast.simulate.pipelines.costs import PartCosts
from meshcast.simulate.pipelines.schedule import PipelineSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on each device of a stage at its worst moment; `peak = fixed + activations + working`."""

    fixed: int
    activations: int
    working: int
    in_flight: int  # microbatches, times chunks, that are kept at once at the most

    @property
    def peak(self) -> int:
        """All of it."""
        return self.fixed + self.activations + self.working


def stage_memory(schedule: PipelineSchedule, stage: int, parts: tuple[PartCosts, ...]) -> StageMemory:
    """The worst moment of a stage; it depends on the order alone, not on times."""
    columns = columns_of(schedule)
    mine = [parts[schedule.position(stage, chunk)] for chunk in range(schedule.chunks)]
    work, chunk = (column[columns.of_stage(stage)] for column in (columns.work, columns.chunk))
    fixed = sum(part.fixed_bytes for part in mine)
    if not len(work):
        return StageMemory(fixed=fixed, activations=0, working=0, in_flight=0)
    saved = np.array([part.saved_bytes for part in mine])[chunk]
    weight_saved = np.array([part.weight_saved_bytes if schedule.split else 0 for part in mine])[chunk]
    working = np.array([[part.working_bytes.get(kind, 0) for part in mine] for kind in WORKS])[work, chunk]
    begins, ends = work == FORWARD, work == (WEIGHT if schedule.split else BACKWARD)
    kept = np.cumsum(begins * saved + (work == BACKWARD) * weight_saved)
    # What a task uses up is there until it is done.
    live = kept - _before(ends * (saved + weight_saved))
    worst = int(np.argmax(live + working))
    return StageMemory(
        fixed=fixed,
        activations=int(live[worst]),
        working=int(working[worst]),
        in_flight=int((np.cumsum(begins) - _before(ends)).max()),
    )


def _before(amounts: NDArray[Any]) -> Integers:
    """What has been added up before each."""
    total: Integers = np.cumsum(amounts) - amounts
    return total
