"""What the host costs a run: the seconds in which it issues a step, and the pauses between launches outside of CUDA graphs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from meshcast.estimate import EstimatedKernels
from meshcast.lower import LoweredProgram
from meshcast.programs import Role
from meshcast.simulate import (
    LOOSE_GAP,
    WHOLE_PROGRAM_LAUNCHES,
    AskingLoops,
    Experts,
    HostCosts,
    Timeline,
    awaited_launches,
    call_costs,
    host_seconds,
    issued_step,
    lead_seconds,
    loose_launches,
    with_pauses,
)
from meshcast.workload import FrameworkStep

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

ROUNDING = 1e-12  # seconds by which a sum over turns differs from their product


def issuing_seconds(run: Run) -> float:
    """Seconds that the host needs to issue a step, 0 where it is not counted.

    It is not for models that know no launches (the speed of light), and unless told otherwise for programs of a few
    kernels, which are taken for a part of a larger program. Of one that launches nothing it is all there is.
    """
    if (step := run.lowered.workload.step) is not None and step.host:
        return _issued_by_framework(run, step) if run.options.run.host != "off" and run.full_clock.gap > 0 else 0.0
    count, first = run.lowered.kernel_count, run.estimators[0].fidelity
    launches = run.device.kind == "gpu" and (run.full_clock.gap > 0 if count else first != "roofline")
    # A program that decides by itself when it is done is a whole one, however few its launches are in the turns assumed.
    large = count >= WHOLE_PROGRAM_LAUNCHES or bool(run.workload.data_loops)
    whole = run.options.run.host == "on" or large or not count
    if not launches or not whole or run.options.run.host == "off":
        return 0.0
    asking = {loop.label for loop in run.workload.data_loops}
    costs = run.options.run.host_costs
    experts = expert_weights(run.lowered) if costs is not None and costs.each_expert else frozenset()
    return host_seconds(run.lowered, costs, without=asking, experts=experts) + run.asking[0]


def pace_without_effect(run: Run) -> list[str]:
    """What to say of a pace of PyTorch's host (`slow`, `fast`, a time) that is given for a program that it does not issue."""
    host, step = run.options.run.host, run.lowered.workload.step
    if host in ("auto", "on", "off") or (step is not None and step.host):
        return []
    return [
        f"--host {host} has no effect: it is how fast PyTorch calls op by op, and a compiler's runtime issues this step"
    ]


def expert_weights(lowered: LoweredProgram) -> Experts:
    """Parameters of at least three dimensions: a matrix for each expert, or for each layer, which no product takes at once."""
    workload = lowered.workload
    shapes = (
        lowered.tensors[value].shape
        for value, argument in zip(workload.body.inputs, workload.arguments, strict=False)
        if argument.role is Role.PARAMETER
    )
    return frozenset((shape[-3], shape[-2], shape[-1]) for shape in shapes if len(shape) > 2)


def _issued_by_framework(run: Run, step: FrameworkStep) -> float:
    """Seconds of a step that a framework issues op by op, at the device's full clock."""
    return issued_step(launch_seconds(run, step), step.host, call_costs(run.options.run.host))


def issued_at(run: Run, kernels: EstimatedKernels, host_factor: float) -> float:
    """Seconds of a step that a framework issues op by op, with other times of its kernels and a host so many times as slow."""
    step = run.lowered.workload.step
    assert step is not None
    costs = call_costs(run.options.run.host).scaled(host_factor)
    return issued_step(launch_seconds(run, step, kernels), step.host, costs)


def launch_seconds(run: Run, step: FrameworkStep, kernels: EstimatedKernels | None = None) -> list[float]:
    """Seconds of each launch of a step that a framework issues op by op, with the device's pause before it.

    Of `kernels`, else of the run's own at the full clock.
    """
    kernels = kernels or run.full_clock
    pause = run.full_clock.gap + LOOSE_GAP * run.device.launch_latency_s
    seconds = [0.0] * len(step.host)
    for kernel, count in run.lowered.schedule.walk():
        _, _, number = kernel.name.rpartition(".")
        seconds[int(number)] += count * (kernels[kernel].time + pause)
    return seconds


def leading_seconds(run: Run) -> float:
    """Seconds that a step takes more with the device at rest before it; 0 where no host is counted, or it calls op by op."""
    if not run.host or run.lowered.workload.step is not None:
        return 0.0
    return lead_seconds(run.lowered, run.options.run.host_costs, host_bound=run.host >= run.timeline.duration)


def pausing_seconds(run: Run) -> float:
    """Seconds between launches outside of CUDA graphs; in loops that end on data also what they wait for the host."""
    if not run.host:
        return 0.0
    graphs, asking = _launched(run)
    loose = loose_launches(run.lowered.schedule, graphs=graphs, without=asking)
    whole, device = run.asking
    return loose * LOOSE_GAP * run.device.launch_latency_s + (whole - device)


def paused_timeline(run: Run, alone: Timeline) -> Timeline:
    """The device's timeline with its pauses in their places; those of loops that end on data are not among them.

    Args:
        run: The run.
        alone: The timeline without pauses, with its spans and its path.
    """
    if run.pauses <= 0:
        return alone
    graphs, asking = _launched(run)
    launches = awaited_launches(run.lowered.schedule, graphs=graphs, without=asking)
    found = with_pauses(alone, launches, LOOSE_GAP * run.device.launch_latency_s)
    whole = alone.duration + run.pauses
    if found.duration > whole + ROUNDING:  # a loop that ends on data, where the host's part is less than nothing
        return alone
    return replace(found, duration=whole) if found.duration > whole - ROUNDING else found


def _launched(run: Run) -> tuple[bool, Collection[str]]:
    """Whether there are CUDA graphs, and the labels of loops that end on data."""
    costs = run.options.run.host_costs
    graphs = run.lowered.workload.step is None and (costs is None or costs.graphs)
    return graphs, {loop.label for loop in run.workload.data_loops}


def asking_seconds(run: Run) -> tuple[float, float]:
    """Seconds of loops that end on data, with the host's part in them, and of the device alone in them."""
    asking = {loop.label for loop in run.workload.data_loops}
    if not asking:
        return 0.0, 0.0
    loops = AskingLoops(
        labels=asking,
        costs=run.options.run.host_costs or HostCosts(),
        pause=LOOSE_GAP * run.device.launch_latency_s,
    )
    return loops.seconds(run.lowered.schedule, run.simulator.run(run.full_clock, run.network))
