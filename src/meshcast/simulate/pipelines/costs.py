"""What a pipeline's parts take: seconds and bytes by position, which a schedule and its simulation are run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshcast.simulate.pipelines.schedule import PassWork


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCosts:
    """One part of the model (a position), on the devices of its stage.

    Attributes:
        forward_s: Seconds of a microbatch's forward pass.
        backward_s: Seconds of its backward pass; where that is split, of the input's gradient.
        weight_s: Seconds of the weights' gradient where it is a program of its own; else it is within `backward_s`.
        forward_send_s: Seconds until the result of a forward pass is at the next part.
        backward_send_s: Seconds until the gradient of the input is at the part before.
        saved_bytes: What a forward pass leaves for the backward pass of the same microbatch.
        weight_saved_bytes: What a backward pass leaves for the weights' gradient.
        working_bytes: What is needed beside these while a task runs: temporaries, messages in and out; by kind of task.
        fixed_bytes: What stays for the whole step: weights, gradients, optimizer state.
        reduce_s: Seconds of the reduction of its gradients over data-parallel replicas, once a step.
    """

    forward_s: float
    backward_s: float
    weight_s: float = 0.0
    forward_send_s: float = 0.0
    backward_send_s: float = 0.0
    saved_bytes: int = 0
    weight_saved_bytes: int = 0
    working_bytes: Mapping[PassWork, int] = field(default_factory=dict)
    fixed_bytes: int = 0
    reduce_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Everything a step takes.

    Attributes:
        parts: By position.
        update_s: Seconds of each stage's optimizer, once a step and after its reductions.
        tied_s: Seconds of the sum of gradients that the first and the last position share, before the optimizers of their
            stages: it begins when both stages have reduced theirs. 0 where they share none.
        overlap_sends: Whether a stage computes while it sends; else it waits until what it sent has arrived.
        buckets: Pieces that a reduction is cut into. A piece can go once a last backward pass has come past it; 1 puts
            the whole reduction behind that pass, 0 behind everything the stage does.
    """

    parts: tuple[PartCosts, ...]
    update_s: tuple[float, ...] = ()
    tied_s: float = 0.0
    overlap_sends: bool = True
    buckets: int = 1
