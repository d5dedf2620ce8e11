"""Where a run's collectives go: what is asked for about the network, made into a setting, and what they take from compute."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from meshcast.base import KeptBeside
from meshcast.hardware import NetworkLevel, host_rate
from meshcast.jobs.program.uneven_devices import check_kinds, speeds_of_kinds
from meshcast.lower import Schedule
from meshcast.network import (
    OPTIMISE,
    Arrangement,
    NetworkModel,
    Setting,
    WholeJob,
    arranged,
    network_model,
    without_effect,
)
from meshcast.simulate import Contention, OnNetwork, Simulator, collective_of_kernel
from meshcast.workload import Collective

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run


def arranged_run(run: Run) -> tuple[Setting, tuple[str, ...]]:
    """Where the collectives of a run go, and what should be said about it."""
    counts = collectives_of(run)
    asked = run.options.network.arrangement
    if kinds := speeds_of_kinds(run):
        speed = {**asked.conditions.speed, **kinds}
        asked = replace(asked, conditions=replace(asked.conditions, speed=speed))
    setting, said = arranged(asked, run.cluster, run.devices, counts, lambda setting: _step_in(run, setting))
    if run.job_devices is not None:
        setting = replace(setting, part_of=WholeJob(cluster=run.cluster, devices=run.job_devices))
    if not run.whole:
        return setting, said
    # The catalogue's clusters may have more than a program needs; what a user has written should do something.
    own = run.options.own_hardware and bool(counts)
    return setting, (*said, *without_effect(run.options.network.model, setting, counts, levels=own))


def check_arrangement(run: Run) -> None:
    """Refuses what `arranged_run` would refuse, without a time: of a run that does not fit none is asked for.

    Raises:
        UsageError, InputError: Something does not exist, does not match, or is for another model.
    """
    asked = run.options.network.arrangement
    check_kinds(run)
    known = replace(asked, placement=None) if asked.placement == OPTIMISE else asked
    arranged(known, run.cluster, run.devices, collectives_of(run))


_COLLECTIVES: KeptBeside[Counter[Collective]] = KeptBeside()


def collectives_of(run: Run) -> Counter[Collective]:
    """A program's collectives, with how often a step has each: not to be changed."""
    schedule = run.lowered.schedule
    return _COLLECTIVES.of(schedule, None, lambda: _counted(schedule))


def _counted(schedule: Schedule) -> Counter[Collective]:
    counts: Counter[Collective] = Counter()
    for kernel, count in schedule.walk():
        if kernel.collective is not None:
            counts[kernel.collective] += count
    return counts


def levels_spanned(run: Run) -> tuple[NetworkLevel, ...] | None:
    """All of the network that a run's collectives can read: the levels that its devices span.

    None where they read more: the state of links, a placement, other jobs, a model that looks at the whole job.
    """
    if run.options.network.arrangement != _PLAIN:
        return None
    levels = run.cluster.levels
    return levels[: sum([level.size < run.devices for level in levels]) + 1] if run.devices > 1 else ()


_PLAIN = Arrangement()


def _step_in(run: Run, setting: Setting) -> float:
    """Seconds of the step, at the full clock, with collectives timed in another setting."""
    model = network_model(run.options.network.model, setting)
    return simulator_on(run, contention_on(run, model)).duration(run.full_clock, OnNetwork(model=model))


def contention_on(run: Run, model: NetworkModel) -> Contention | None:
    """The cores and bandwidth that collectives take from compute; None where they take nothing, or contention is off."""
    if run.options.run.contention == "off" or run.devices == 1:
        return None
    return Contention(device=run.device, in_network=lambda kernel: model.plan(collective_of_kernel(kernel)).in_network)


def simulator_on(run: Run, contention: Contention | None) -> Simulator:
    """The program planned once, to be run with any times.

    Bytes/s of the link to the host's memory are asked for where something moves over it alone.
    """
    rate = host_rate(run.device) if run.options.lowering.rewrites.offload else math.inf
    return Simulator(run.lowered, run.options.scheduling, contention, rate)
