"""What is known of a run before anything is timed: its memory, whether that fits, and what it counts.

Of a run that does not fit this is the whole answer: no estimator is asked for a time, and nothing is simulated. Two figures of
an answer are about times, and have their own way here. Which of two branches runs is decided by which takes longer, at the
clock that the power cap leaves the whole step, so that a program with branches is timed after all, once it is known not to
fit. And the fidelity, which names where most of the time comes from, is that of the estimators which would answer for most of
the work, weighed by the speed of light (`estimate.roofline`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING

from meshcast.base import VERSION
from meshcast.estimate import answering, light_seconds
from meshcast.jobs.program.on_network import check_arrangement
from meshcast.lower import NOTHING_PAIRED
from meshcast.results import CompiledBy, Prediction, Provenance
from meshcast.simulate import Executed, hidden_launches

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run


def untimed_prediction(run: Run) -> Prediction:
    """All of a prediction that needs no time, with the verdict on its memory.

    Raises:
        UsageError, InputError: What is asked for about the network cannot be.
        UnsupportedError: No estimator would answer for a kernel.
    """
    check_arrangement(run)
    schedule = run.lowered.schedule
    counted = run.executes if schedule.branches else Executed(tuple(schedule.walk()))
    return counted_prediction(run, counted, _fidelity(run, counted))


def counted_prediction(run: Run, counted: Executed, fidelity: str) -> Prediction:
    """A prediction without times of the kernels that run, with how often, and of where their times come from."""
    workload = run.workload
    return Prediction(
        name=workload.name,
        sha256=workload.sha256,
        devices=run.devices,
        mesh=workload.mesh.sizes,
        device=run.device.name,
        cluster=run.cluster.name if run.devices > 1 else None,
        fidelity=fidelity,
        lowering=run.lowered.lowering,
        compiler=CompiledBy(**asdict(run.lowered.compiler)) if run.lowered.compiler is not None else None,
        network=run.options.network.model,
        infeasible=run.verdict,
        flops=workload.totals.flops,
        hbm_bytes=counted.memory_bytes,
        communication_bytes=counted.sent_bytes,
        memory=run.memory,
        capacity_bytes=run.capacity,
        kernels=counted.launches + hidden_launches(run.lowered, run.device),
        provenance=Provenance(analytical=1.0),
        warnings=(*workload.warnings, *run.notes, *_idle(run)),
        facts=workload.facts,
        version=VERSION,
    )


def _idle(run: Run) -> tuple[str, ...]:
    """What to say of `--overlap` where the user asked for it in vain: one program has no passes to pair, either."""
    if not run.whole or run.brief or "overlap" not in run.options.asked:
        return ()
    return (*run.lowered.idle, *((NOTHING_PAIRED,) if run.options.lowering.rewrites.paired_passes else ()))


def _fidelity(run: Run, counted: Executed) -> str:
    """The fidelity that would answer for most of the work; `compiled` where that was asked for."""
    if run.options.estimate.fidelity == "compiled":
        return "compiled"
    computing = [(kernel, count) for kernel, count in counted.kernels if kernel.collective is None]
    unique = {kernel.cost_key: kernel for kernel, _ in computing}
    named = run.options.estimate.simulator is not None
    answers = {
        key: run.estimators[answering(kernel, run.device, run.estimators, first_named=named)].fidelity
        for key, kernel in unique.items()
    }
    found = dict.fromkeys(answers.values())
    if len(found) < 2:
        return next(iter(found), run.estimators[0].fidelity)
    seconds = dict(zip(unique, light_seconds(list(unique.values()), run.device).tolist(), strict=True))
    weights: defaultdict[str, float] = defaultdict(float)
    for kernel, count in computing:
        weights[answers[kernel.cost_key]] += count * seconds[kernel.cost_key]
    return max(weights, key=lambda fidelity: weights[fidelity])
