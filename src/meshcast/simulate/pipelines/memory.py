"""What a pipeline's stages keep: activations of the microbatches in flight, beside weights and working memory.

A microbatch is in flight in a chunk from its forward pass until its backward pass, or its weights' gradient where that
is separate. With n_c microbatches of chunk c in flight while a task runs,

    memory = fixed + sum over chunks of (n_c saved_c + w_c weight_saved_c) + what the task itself works with

where w_c of them have come through their backward pass and wait for the weights' gradient only.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.simulate.pipelines.costs import PartCosts
from meshcast.simulate.pipelines.schedule import PipelineSchedule, Work


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
    mine = [parts[schedule.position(stage, chunk)] for chunk in range(schedule.chunks)]
    fixed = sum(part.fixed_bytes for part in mine)
    live = in_flight = most = 0
    worst, worst_working = 0, 0
    for task in schedule.orders[stage]:
        part = mine[task.chunk]
        if task.work is Work.FORWARD:
            live += part.saved_bytes
            in_flight += 1
        elif task.work is Work.BACKWARD and schedule.split:
            live += part.weight_saved_bytes
        most = max(most, in_flight)
        working = part.working_bytes.get(task.work, 0)
        if live + working > worst + worst_working:
            worst, worst_working = live, working
        if task.work is (Work.WEIGHT if schedule.split else Work.BACKWARD):
            live -= part.saved_bytes + (part.weight_saved_bytes if schedule.split else 0)
            in_flight -= 1
    return StageMemory(fixed=fixed, activations=worst, working=worst_working, in_flight=most)
