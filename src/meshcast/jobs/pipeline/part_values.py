"""What the programs of a part keep and pass on to each other: bytes and values, the same on all hardware.

A sweep asks about the same programs on one machine after the other. What is found here follows from the programs alone, and is
kept with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshcast.base import KeptBeside, UsageError
from meshcast.jobs.pipeline.definition import PartWiring, Pipeline
from meshcast.jobs.pipeline.wiring import PartProgram, Values, passed_on, total_bytes
from meshcast.lower import Kernel, LoweredProgram, with_deferred_sums


@dataclass(frozen=True, slots=True, kw_only=True)
class PartValues:
    """Values of a part's programs, by their paths, and bytes of one device.

    Attributes:
        saved: What a forward pass leaves for the backward pass.
        weight_saved: What a backward pass leaves for the weights' gradient.
        gradients: Kept for the whole step.
        summing: The program that makes the gradients, with each device's own as its results; as it is where it has none else.
        sums: The sums over devices that it is then without, each with how often: they are made once a step.
        parameter_bytes: Weights.
        state_bytes: State of the optimizer.
        accumulates: Whether the sum over microbatches needs no pass of its own.
        kept_bytes: By program, what of its memory is accounted for elsewhere.
        programs: The programs that all of this is of.
    """

    saved: Values
    weight_saved: Values
    gradients: Values
    summing: LoweredProgram
    sums: tuple[tuple[Kernel, int], ...]
    parameter_bytes: int
    state_bytes: int
    accumulates: bool
    kept_bytes: dict[str, int]
    programs: tuple[LoweredProgram, ...]


_VALUES: KeptBeside[PartValues] = KeptBeside()


def gradient_program(programs: dict[str, PartProgram]) -> str:
    """The name of the program that makes the gradients."""
    return "weight" if "weight" in programs else "backward"


def part_values(programs: dict[str, PartProgram], pipeline: Pipeline) -> PartValues:
    """The values of a part's programs in a pipeline.

    Raises:
        UsageError: The programs do not fit together.
        UnsupportedError: A compiler has changed the results of one.
    """
    lowered = tuple(program.run.lowered for program in programs.values())
    # By identity: what is kept holds the programs, so that no others come to have theirs.
    names = tuple((name, id(program.run.lowered), program.results) for name, program in programs.items())
    key = names, pipeline.wiring, pipeline.microbatches == 1
    return _VALUES.of(lowered[0], key, lambda: _found(programs, pipeline, lowered))


def _found(programs: dict[str, PartProgram], pipeline: Pipeline, lowered: tuple[LoweredProgram, ...]) -> PartValues:
    wiring = pipeline.wiring
    forward, backward, weight = programs["forward"], programs["backward"], programs.get("weight")
    saved = passed_on(forward, wiring.saved_output, backward, wiring.saved, "what is saved", needed=False)
    weight_saved: Values = {}
    if weight is not None:
        passed_on(forward, wiring.saved_output, weight, wiring.saved, "what is saved", needed=False)
        weight_saved = passed_on(
            backward, wiring.weight_saved_output, weight, wiring.weight_saved, "what is saved", needed=False
        )
    last, where = (backward, wiring.gradients_output) if weight is None else (weight, wiring.weight_gradients_output)
    gradients = last.outputs(where)
    if not gradients:
        raise UsageError(
            f"{last.label} has no result {where!r}: where are its gradients? its results are {last.result_names()}",
            where=last.where,
            fix="return them there, or say under [wiring] where they are",
        )
    summing, sums = _summed_once(last, where) if pipeline.microbatches > 1 else (last.run.lowered, ())
    update = programs.get("update")
    return PartValues(
        saved=saved,
        weight_saved=weight_saved,
        gradients=gradients,
        summing=summing,
        sums=sums,
        parameter_bytes=max(total_bytes(program.arguments(wiring.parameters)) for program in programs.values()),
        state_bytes=total_bytes(update.arguments(wiring.optimizer_state)) if update else 0,
        accumulates=bool(last.arguments(wiring.gradients)) or pipeline.microbatches == 1,
        kept_bytes={name: _kept_bytes(name, each, wiring, split=weight is not None) for name, each in programs.items()},
        programs=lowered,
    )


def _summed_once(program: PartProgram, gradients: str) -> tuple[LoweredProgram, tuple[tuple[Kernel, int], ...]]:
    """A program whose gradients stay each device's own, and the sums that are made of them once a step."""
    lowered = program.run.lowered
    outputs = lowered.schedule.outputs
    if len(outputs) != len(program.results):  # a compiler has changed the results
        return lowered, ()
    own = frozenset(v for name, v in zip(program.results, outputs, strict=True) if name.startswith(gradients))
    schedule, found = with_deferred_sums(lowered.schedule, own)
    if not found:
        return lowered, ()
    return _SUMMING.of(lowered, own, lambda: replace(lowered, schedule=schedule)), tuple(found)


_SUMMING: KeptBeside[LoweredProgram] = (
    KeptBeside()
)  # one object for all parts that have the program, whose times are kept by it


def _kept_bytes(name: str, program: PartProgram, wiring: PartWiring, *, split: bool) -> int:
    """What of a program's memory is accounted for elsewhere: weights, gradients, optimizer state, what is saved."""
    prefixes = (wiring.parameters, wiring.gradients, wiring.optimizer_state, wiring.saved, wiring.weight_saved)
    kept = sum(total_bytes(program.arguments(prefix)) for prefix in prefixes)
    if name == "forward":
        kept += total_bytes(program.outputs(wiring.saved_output))
    if name == "backward" and split:
        kept += total_bytes(program.outputs(wiring.weight_saved_output))
    return kept
