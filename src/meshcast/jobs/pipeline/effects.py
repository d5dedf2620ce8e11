"""What is asked for about the network of a pipeline and changes none of its times: messages, reductions, collectives of
its programs. Found as everywhere else (`network.effects`), by changing it and asking again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshcast.hardware import Cluster, Conditions
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.state import HardwareState, in_state
from meshcast.jobs.pipeline.step import StepParts, assemble
from meshcast.network import Setting, settings_without_effect


def without_effect(
    pipeline: Pipeline, estimates: Sequence[PartEstimate], setting: Setting, network: str, *, levels: bool
) -> tuple[str, ...]:
    """A sentence for each condition of links, and where `levels` says so for each setting of the cluster's.

    Args:
        pipeline: The pipeline.
        estimates: Estimates of its parts, equal ones once.
        setting: The hardware of all its devices, and its state.
        network: Name of the model.
        levels: Whether the cluster's own settings are looked at.
    """
    links = replace(setting.conditions, speed={}, kinds={})
    concerned = HardwareState.of(links).linked()
    if not levels and links.healthy:
        return ()

    def seconds(cluster: Cluster, conditions: Conditions) -> tuple[float, ...]:
        step = assemble(pipeline, estimates, replace(setting, cluster=cluster, conditions=conditions), network)
        found = [*_passed(step)]
        for estimate in estimates:
            held = [device for device in concerned if device // pipeline.mesh.size in _stages(step, estimate)]
            found += _inside(estimate, cluster, HardwareState.of(conditions), held)
        return tuple(found)

    if not seconds(setting.cluster, links):
        levels = False  # nothing is sent at all: the cluster's levels are not to blame
    return settings_without_effect(setting.cluster, links, seconds, levels=levels)


def _passed(step: StepParts) -> Iterator[float]:
    """Seconds of messages between stages, and of reductions over replicas."""
    for messages in (step.forward, step.backward, step.reductions, step.gathers):
        yield from (message.seconds for message in messages if message is not None)


def _stages(step: StepParts, estimate: PartEstimate) -> set[int]:
    return {step.schedule.place(at)[0] for at, other in enumerate(step.estimates) if other is estimate}


def _inside(
    estimate: PartEstimate, cluster: Cluster, state: HardwareState, concerned: Sequence[int]
) -> Iterator[float]:
    """Seconds of the collectives of a part's programs: on healthy devices, and in the copies with devices of concern."""
    for program in estimate.programs.values():
        kernels = program.run.lowered.schedule.walk()
        collectives = dict.fromkeys(kernel.collective for kernel, _ in kernels if kernel.collective is not None)
        if not collectives:
            continue
        run, devices = replace(program.run, cluster=cluster), program.run.devices
        places = sorted({device // devices * devices for device in concerned})
        for local in ((), *(state.around(place, devices) for place in places)):
            model = in_state(run, state.everyone, local).network_model
            yield from (model.seconds(collective) for collective in collectives)
