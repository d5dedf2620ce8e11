"""Other hardware: twice the memory's bandwidth, the arithmetic rate, a level's links; and devices that are not slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from meshcast.hardware import HEALTHY, Conditions
from meshcast.jobs.levers.candidate import Candidate, Question
from meshcast.options import Options

_CAPPED = 0.97  # of the power cap: from here on a run is taken to be held back by it


def of_hardware(question: Question) -> Iterator[Candidate]:
    """What-if hardware (`hardware.what_if`); of hardware that has no name there is none."""
    options = question.options
    if isinstance(options.on, str):
        yield from _twice(question, options.on)
    conditions = options.network.conditions
    if conditions.speed or conditions.kinds:
        yield Candidate(
            change="all devices at the same speed",
            flag="without --slow",
            options=_in_state(question, replace(conditions, speed={}, kinds={})),
            bound=1.0,  # the whole step waits for the slowest
        )
    if conditions.links:
        healthy = _in_state(question, replace(conditions, links=()))
        bound = question.share("exposed_communication")
        yield Candidate(change="links at their full rate", flag="without --link", options=healthy, bound=bound)
    if conditions.background:
        alone = _in_state(question, replace(conditions, background={}))
        bound = question.share("exposed_communication")
        yield Candidate(change="no other jobs", flag="without --background", options=alone, bound=bound)
    step, energy = question.prediction.step_time_s, question.prediction.energy_j
    if (
        options.estimate.clocks == "sustained"
        and step
        and energy
        and energy / step > _CAPPED * question.cluster.device.tdp_watts
    ):
        burst = question.changed(clocks="burst")
        bound = question.share("compute") / 2
        yield Candidate(change="a short run on cool devices", flag="--clocks burst", options=burst, bound=bound)


def _twice(question: Question, on: str) -> Iterator[Candidate]:
    device = question.cluster.device
    yield from _candidate(
        question,
        on,
        "twice the memory bandwidth",
        {"memory.bandwidth": f"{2e-9 * device.memory_bandwidth:.10g}GB/s"},
        question.share("memory") / 2,
    )
    if types := [name for name in question.prediction.matrix_types if name in device.matrix_flops]:
        rates = {f"matrix.{name}": f"{2e-12 * device.matrix_flops[name]:.10g}TFLOP/s" for name in types}
        yield from _candidate(
            question, on, f"twice the {types[0]} arithmetic rate", rates, question.share("compute") / 2
        )
    total = sum(each.seconds for each in question.prediction.collectives)
    for level in question.cluster.levels:
        of_level = sum(each.seconds for each in question.prediction.collectives if each.level == level.name)
        if of_level:
            rate = {f"{level.name}.link_bandwidth": f"{2e-9 * level.link_bandwidth:.10g}GB/s"}
            bound = question.share("exposed_communication") * of_level / total / 2
            yield from _candidate(question, on, f"twice the {level.name} bandwidth", rate, bound)


def _candidate(question: Question, on: str, change: str, keys: dict[str, str], bound: float) -> Iterator[Candidate]:
    if any(f"+{key}=" in on for key in keys):  # changed already: a second change would be refused
        return
    name = on + "".join(f"+{key}={value}" for key, value in keys.items())
    yield Candidate(change=change, flag=f"--on {name}", options=question.changed(on=name), bound=bound)


def _in_state(question: Question, conditions: Conditions) -> Options:
    """The options with another state of devices and links; where all of it is healthy, nobody has asked for any."""
    if conditions == HEALTHY:
        return question.without_fields(("conditions",))
    return question.changed(conditions=conditions)
