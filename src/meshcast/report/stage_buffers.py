"""The buffers of a pipeline's fullest stage at its peak: what stays, what passes in flight have left, what a pass works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from meshcast.jobs import PartEstimate, Run, StepParts, stage_positions
from meshcast.report.tables import TableCell
from meshcast.results import StageShare

Rows = list[list[TableCell]]


def stage_buffers(
    step: StepParts, stages: tuple[StageShare, ...], temporaries: Callable[[Run], Rows]
) -> tuple[Rows, str]:
    """Rows of bytes, what, type, role and source, and what they are of.

    What stays and what is in flight adds up to the stage's own figures. What a pass works with are the temporaries of the pass
    that needs most, at their own peak.

    Args:
        step: The parts.
        stages: What each stage holds.
        temporaries: The rows of a program's temporaries.
    """
    fullest = max(stages, key=lambda each: each.memory_bytes["peak"])
    positions = list(stage_positions(step, fullest.stage))
    estimates = [step.estimates[position] for position in positions]
    rows: Rows = [row for estimate in estimates for row in _staying(estimate)]
    count, held = fullest.in_flight, fullest.memory_bytes["activations"]
    if len(estimates) == 1:
        rows += [
            [
                count * tensor.bytes,
                f"saved{path}" if path.startswith("[") else path,
                f"{count} × {tensor}",
                "activation",
                "",
            ]
            for path, tensor in estimates[0].saved.items()
            if tensor.bytes
        ]
    elif held:  # which of the chunks have how many in flight depends on the moment
        rows.append([held, f"what {count} passes in flight have left", "", "activation", ""])
    estimate, name = max(
        ((each, name) for each in estimates for name in each.programs),
        key=lambda found: found[0].working_bytes.get(found[1], 0),
    )
    rows += temporaries(estimate.programs[name].run)
    flying = f"{count} microbatch{'' if count == 1 else 'es'} in flight"
    said = f"a rank of stage {fullest.stage}, which holds most, with {flying}; temporaries are those of "
    return rows, f"{said}{estimate.programs[name].label} at their own peak"


def _staying(estimate: PartEstimate) -> Iterator[list[TableCell]]:
    """What a part holds for the whole step."""
    part = estimate.part.name
    for size, what, role in (
        (estimate.parameter_bytes, f"parameters of {part}", "parameter"),
        (estimate.gradient_bytes, f"gradients of {part}", "gradient"),
        (estimate.optimizer_bytes, f"optimizer state of {part}", "optimizer state"),
    ):
        if size:
            yield [size, what, "", role, ""]
