"""From a step's parts to its costs: seconds and bytes for the simulation, and both ends of their intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.step import Message, StepParts
from meshcast.jobs.pipeline.walk import gradient_seconds, stage_positions, update_pieces
from meshcast.network import NETWORK_FACTOR, NETWORK_START_S
from meshcast.simulate import StepCosts

End = Literal["low", "middle", "high"]


def step_costs(pipeline: Pipeline, step: StepParts, end: End = "middle") -> StepCosts:
    """Seconds and bytes for the simulation, at one end of their intervals or in the middle."""

    def wire(seconds: float) -> float:
        """The seconds of messages or collectives, one after the other."""
        if end == "middle" or not seconds:
            return seconds
        if end == "high":
            return seconds * NETWORK_FACTOR + NETWORK_START_S
        return max(0.0, seconds / NETWORK_FACTOR - NETWORK_START_S)

    def seconds(estimate: PartEstimate, name: str) -> float:
        prediction = estimate.predictions.get(name)
        if prediction is None or prediction.step_time_s is None:
            return 0.0
        if end == "middle" or prediction.interval_s is None:
            return prediction.step_time_s
        return prediction.interval_s[0 if end == "low" else 1]

    # Most positions are alike: their parts, reductions and gathers are the same objects.
    known: dict[tuple[str, int, int], float] = {}

    def reducing(position: int) -> float:
        key = "reduce", id(step.estimates[position]), id(step.reductions[position])
        if key not in known:
            known[key] = gradient_seconds(step, position)
        return known[key]

    held = {id(estimate): estimate.held for estimate in step.parts}
    parts = tuple(
        replace(
            held[id(estimate)],
            forward_s=seconds(estimate, "forward"),
            backward_s=seconds(estimate, "backward") + (0.0 if "weight" in estimate.programs else added),
            weight_s=seconds(estimate, "weight") + (added if "weight" in estimate.programs else 0.0),
            forward_send_s=wire(_seconds(step.forward[position])),
            backward_send_s=wire(_seconds(step.backward[position])),
            reduce_s=wire(reducing(position)),
        )
        for position, estimate in enumerate(step.estimates)
        for added in (estimate.accumulation_s,)
    )

    def updating(position: int) -> float:
        key = "update", id(step.estimates[position]), id(step.gathers[position])
        if key not in known:
            known[key] = sum(
                seconds(step.estimates[position], piece.program)
                if piece.program
                else wire(piece.seconds)
                if piece.collective
                else piece.seconds
                for piece in update_pieces(pipeline, step, position)
            )
        return known[key]

    return StepCosts(
        parts=parts,
        update_s=tuple(
            sum(updating(position) for position in stage_positions(step, stage))
            for stage in range(step.schedule.stages)
        ),
        tied_s=wire(_seconds(step.ties[0])),
        overlap_sends=pipeline.overlap_sends,
        buckets=pipeline.reduction.buckets if pipeline.reduction else 1,
    )


def _seconds(message: Message | None) -> float:
    return 0.0 if message is None else message.seconds
