"""A target predicted and put beside traces of it: `compare_measured("gpt2-small", ["run.xplane.pb"], on="h200")`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from meshcast.base import InfeasibleError, InputError, UnsupportedError, UsageError, expect, format_bytes, format_time
from meshcast.evidence.comparison.reality.predicted import PredictedLaunch, launches
from meshcast.evidence.comparison.reality.reality import MeasuredRank, Reality, side_by_side
from meshcast.evidence.comparison.reality.sources import Sources, sources_of
from meshcast.evidence.comparison.reality.waiting import waiting_of
from meshcast.evidence.profiler import MeasuredKernel, MeasuredTrace, find_steps, read_traces
from meshcast.evidence.profiler.classes import IDLE, class_of, is_collective
from meshcast.evidence.profiler.repetition import repetitions
from meshcast.jobs import PipelineJob, TraceJob, chosen_options, one_program, resolve_job
from meshcast.options import OptionKeywords, Options
from meshcast.programs import Program
from meshcast.results import Prediction

# Of the measured step that may be gaps beyond those predicted: as much as kernels alone are off in most of the profiles that come
# with the project (docs/measured.md), so that gaps are named where they are more than the rest of the difference.
GAPS = 0.15
# Of the full clock, to which products are in proportion. From step to step they differ by up to 0.7 % in the profiles that come
# with the project: 3 % is surely more than that, and less is not worth a word.
CAPPED = 0.97
SAME_STEP = 0.01  # of the median step: ranks that differ by less run in step


def compare_measured(
    target: str | Path | Program,
    measured: str | Path | Sequence[str | Path],
    options: Options | None = None,
    *,
    steps: int | None = None,
    module: str | None = None,
    **overrides: Unpack[OptionKeywords],
) -> Reality:
    """The prediction for a target beside what was measured of it.

    Args:
        target: A file, `module:function`, a model's name or a captured program.
        measured: A file or folder of a profiler, or several (`evidence/profiler/`); several are ranks or repetitions of one run.
        options: Settings of the prediction.
        steps: How many steps each trace holds, where they cannot be found.
        module: The compiled program to compare with, of a trace with several.
        **overrides: Single settings, by the field names of `Options`, and `stack`.

    Raises:
        UsageError: No trace is given, or the settings are wrong.
        InputError: A trace cannot be read.
        UnsupportedError: The target is a pipeline, whose ranks run different programs, or a Chakra trace.
        InfeasibleError: The target does not fit the device, so that there is no predicted step.
    """
    chosen = chosen_options(options, overrides, where="compare")
    expect(target, (str, Path, Program), "a text, a path or a meshcast.Program", where="target")
    expect(measured, (str, Path, list, tuple), "a path or a list of paths", where="measured")
    measured = [measured] if isinstance(measured, (str, Path)) else measured
    for path in measured:
        expect(path, (str, Path), "a path", where="measured")
    expect(steps, (int, type(None)), "an integer or None", where="steps")
    expect(module, (str, type(None)), "a text or None", where="module")
    if not measured:
        raise UsageError("no trace is given", where="--measured", fix="name a file or folder of a profiler")
    if steps is not None and steps < 1:
        raise UsageError(f"{steps} steps", where="--steps", fix="give how many the trace holds, 1 or more")
    traces = [trace for path in measured for trace in read_traces(Path(path))]
    if module is not None:
        traces = [trace.of_module(module) for trace in traces]
    return put_beside(predicted_side(target, chosen), traces, steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSide:
    """What a comparison knows of a prediction: the step, its launches, and where they come from."""

    prediction: Prediction
    launches: tuple[PredictedLaunch, ...] = field(repr=False)
    step_s: float
    device: str
    sources: Sources = field(repr=False)
    repeats: int  # parts of the step that are alike
    clock_share: float  # of the full clock, that the power cap leaves a long run


def predicted_side(target: str | Path | Program, options: Options) -> PredictedSide:
    """A target predicted, its launches in order.

    Raises:
        UnsupportedError: The target is a pipeline, whose ranks run different programs, or a Chakra trace.
        InfeasibleError: The target does not fit the device, so that there is no predicted step.
    """
    match job := resolve_job(target, options):
        case TraceJob():
            raise UnsupportedError(
                "a Chakra trace is not compared with a profile: its nodes do not say which of a profile's kernels they are",
                where=str(target),
                fix="compare the program that the trace is of, or give --on devices without --measured",
            )
        case PipelineJob():
            raise UnsupportedError(
                "a pipeline's ranks run different programs, and a trace is of one",
                where=str(target),
                fix="compare the program of one stage",
            )
        case _:
            program = one_program(job).as_program()
    run = program.run
    prediction = run.predict()
    if prediction.infeasible is not None:
        problem = prediction.infeasible
        raise InfeasibleError(
            f"predicted not to fit: {problem.resource} needs {format_bytes(problem.demand)} of "
            f"{format_bytes(problem.bound)}, so there is no predicted step to compare with",
            where=prediction.name,
            fix="check --on and the settings against what was measured",
        )
    found = launches(run)
    return PredictedSide(
        prediction=prediction,
        launches=tuple(found),
        step_s=run.timeline.duration,
        device=run.device.name,
        sources=sources_of(program.program),
        repeats=repetitions([(launch.kind, launch.seconds) for launch in found]),
        clock_share=run.clock_share if options.estimate.clocks == "sustained" else 1.0,
    )


def put_beside(side: PredictedSide, traces: Sequence[MeasuredTrace], *, steps: int | None = None) -> Reality:
    """A prediction beside traces of one run, one for each device: the device with the median step is shown."""
    ranks = [
        MeasuredRank(
            trace=trace, search=find_steps(trace, expected=len(side.launches), count=steps, repeats=side.repeats)
        )
        for trace in traces
    ]
    shown = _median(ranks)
    reality = side_by_side(
        side.prediction,
        side.launches,
        side.step_s,
        shown,
        ranks,
        notes=_notes(ranks, shown, side.device),
        sources=side.sources,
    )
    return replace(reality, notes=(*reality.notes, *_advice(reality, side)))


def _median(ranks: Sequence[MeasuredRank]) -> MeasuredRank:
    """The rank with the median step; of ranks that wait for each other, whose steps are the same, with the median compute."""
    usual = statistics.median(rank.search.step.seconds for rank in ranks)
    if not usual:
        raise InputError(
            "the step found in the trace takes no time: its kernels start at the same moment as those of the next",
            fix="record it again, or give --steps",
        )

    def order(rank: MeasuredRank) -> tuple[int, float]:
        step = rank.search.step
        computing = (kernel.duration for kernel in step.kernels if not is_collective(class_of(kernel)))
        return round(step.seconds / (SAME_STEP * usual)), sum(computing)

    return sorted(ranks, key=order)[(len(ranks) - 1) // 2]


def refuse_strangers(reality: Reality) -> None:
    """Says so where the trace is not of this program.

    Raises:
        InputError: Too little of the measured time was found in the program, or of the predicted time in the trace.
    """
    if reality.comparable:
        return
    trace = reality.shown.trace
    modules = ", ".join(name for name in trace.modules if name)
    raise InputError(
        f"this looks like a trace of another program than {reality.prediction.name}: {reality.evidence.why}",
        where=trace.source,
        fix="check the target, its settings and --on"
        + (f"; the trace is of {modules} (--module NAME takes one of several)" if modules else ""),
    )


def _notes(ranks: Sequence[MeasuredRank], shown: MeasuredRank, device: str) -> list[str]:
    said = []
    trace, search = shown.trace, shown.search
    if trace.device_name:
        said.append(f"measured on {trace.device_name}, predicted for {device}")
    if len(ranks) > 1:
        seconds = [rank.search.step.seconds for rank in ranks]
        said.append(
            f"{len(ranks)} devices measured, steps of {format_time(min(seconds))} to {format_time(max(seconds))}: "
            f"{trace.label} of {trace.source} is shown"
        )
        said += _waiting(ranks, shown)
    if not trace.ordered:
        said.append("a summary says nothing about the time between kernels: steps are those of kernels alone")
    if len(search.steps) == 1 and trace.ordered:
        said.append("only one step is in the trace: it may have warm-up in it")
    for rank in ranks:
        said += [f"{rank.trace.source}: {note}" for note in rank.trace.notes]
    modules = _modules(trace, search.step.kernels)
    if len(modules) > 1:
        said.append(
            "the step runs several modules: "
            + ", ".join(f"{name or 'no name'} {format_time(seconds)}" for name, seconds in modules.items())
        )
    return said


def _advice(reality: Reality, side: PredictedSide) -> list[str]:
    """What makes the two steps hard to compare, and how to compare them better."""
    said = []
    measured = sum(part.measured_s for part in reality.waterfall if part.kind == IDLE)
    predicted = sum(part.predicted_s for part in reality.waterfall if part.kind == IDLE)
    if measured - predicted > GAPS * reality.measured_s:
        said.append(
            f"{measured / reality.measured_s:.0%} of the measured step are gaps between kernels ({format_time(measured)}; "
            f"{format_time(predicted)} predicted): the host is behind, and profilers make launches slower, most of all outside "
            "of CUDA graphs; see what a step takes without one, and compare kernels alone"
        )
    if side.clock_share < CAPPED and reality.evidence.verdict == "same" and reality.evidence.ratio > 1 / CAPPED:
        said.append(
            f"predicted at {side.clock_share:.0%} of the clock, which the power cap leaves a long run, and most products are "
            f"{reality.evidence.ratio:.2f} times as fast: a few steps on a cool device are predicted with --clocks burst"
        )
    return said


def _waiting(ranks: Sequence[MeasuredRank], shown: MeasuredRank) -> list[str]:
    """How long the shown rank's collectives wait for others."""
    place = next(number for number, rank in enumerate(ranks) if rank is shown)
    found = waiting_of(place, [rank.search for rank in ranks])
    if found is None:
        return []
    blamed = f", most of it for {ranks[found.mostly_for].trace.label}" if found.mostly_for is not None else ""
    return [
        f"{found.collectives} collectives of {shown.trace.label} take {format_time(found.seconds)}, of which "
        f"{format_time(found.waiting_s)} wait for other ranks{blamed}: a prediction has ranks that come at once"
    ]


def _modules(trace: MeasuredTrace, kernels: Sequence[MeasuredKernel]) -> dict[str, float]:
    return replace(trace, kernels=tuple(kernels)).modules
