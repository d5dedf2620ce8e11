"""What a prediction says about a pipeline: its schedule, its bubble, and a row for each stage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from meshcast.simulate import CriticalSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """One stage of a pipeline: seconds of a step, and bytes on each of its devices.

    `busy_s + exposed_communication_s + idle_s` is the step, where exposed communication inside the programs (of tensor
    parallelism, say) counts as busy; it is `memory_bytes["peak"]` that must fit. Where a stage does not, nothing has a time.
    """

    stage: int
    parts: str
    first_device: int
    devices: int
    busy_s: float | None
    exposed_communication_s: float | None  # waiting for messages of other stages, and for the reduction of gradients
    idle_s: float | None
    idle_share: float | None
    in_flight: int
    memory_bytes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShare:
    """A pipeline's step; without times where it does not fit."""

    schedule: str
    stages: tuple[StageShare, ...]
    microbatches: int
    virtual_stages: int
    barrier: bool
    bubble: float | None  # share of all stages' time in which they wait for each other
    send_bytes: int  # of the largest message between two stages, from each device
    send_s: float | None  # that it takes
    critical_path: tuple[CriticalSegment, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The pipeline's part of the prediction's JSON."""
        return asdict(self)
