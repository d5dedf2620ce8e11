"""What a run recomputes where its source does not say: the least with which it is predicted to fit.

Recomputation costs time, so that whoever tunes a run takes no more of it than memory asks for. The stack's habit is tried
first, then each step of `MORE` behind it, and where the stack's recipes do so what layers keep is put into the host's memory.
Where even the last does not fit, the habit stands.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.evidence.validate.runs.parallelism import Plan
from meshcast.evidence.validate.runs.planned import predict_run
from meshcast.evidence.validate.runs.target import RunTarget
from meshcast.options import Options
from meshcast.results import Prediction
from meshcast.zoo import Remat

MORE: tuple[Remat, ...] = ("none", "products", "selective", "full")
"""What plans recompute, each more than the one before it."""


def predict_fitting(target: RunTarget, options: Options, *, over_memory: bool = False) -> tuple[RunTarget, Prediction]:
    """The prediction of a run that lacks nothing, and the run with what it was taken to recompute.

    Raises:
        MeshcastError: The plan cannot be carried out.
    """
    assert target.on is not None
    prediction = predict_run(target, options, over_memory=over_memory)
    habit, room = str(target.plan.get("remat", "")), target.on.device.memory_bytes
    if target.recomputation_told or habit not in MORE or prediction.memory.peak <= room:
        return target, prediction
    further: list[Plan] = [{"remat": word} for word in MORE[MORE.index(habit) + 1 :]]
    if target.stack is not None and target.stack.offloads and target.on.device.host_bandwidth is not None:
        further.append({"remat": MORE[-1], "offload": "activations"})
    for changes in further:
        said = ", ".join(f"{name}={word}" for name, word in changes.items())
        other = replace(
            target,
            plan={**target.plan, **changes},
            assumptions=(*target.assumptions, f"{said}: with less it is predicted not to fit"),
        )
        found = predict_run(other, options, over_memory=over_memory)
        if found.memory.peak <= room:
            return other, found
    return target, prediction
