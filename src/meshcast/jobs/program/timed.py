"""What a run says about its time: the step with its interval, where the time goes, energy, and notes on all of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from meshcast.base import copier
from meshcast.estimate import energy_by_part, idle_watts
from meshcast.jobs.program.host_time import issued_at, leading_seconds, pace_without_effect
from meshcast.jobs.program.known_steps import known_step
from meshcast.jobs.program.physical_noise import noise_notes
from meshcast.jobs.program.power_cap import capped_energy
from meshcast.jobs.program.uneven_devices import speeds_without_effect
from meshcast.jobs.program.untimed import counted_prediction
from meshcast.jobs.program.where_time_goes import collective_shares, communication_summary, matrix_flops, top_kernels
from meshcast.network import NETWORK_FACTOR, NETWORK_START_S
from meshcast.results import Prediction, Provenance, Timed, percent, rank_shares, within_peak
from meshcast.simulate import KernelNetwork, KernelTimes, OnNetwork, nothing_launched, simulate_classes

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run

# Host time of the same program differs by this factor, either way, between the servers that we measured on.
HOST_FACTOR = 1.4
# The same for a framework that calls op by op: hosts of four sittings took 0.6 to 1.5 times the default (`docs/pytorch.md`).
CALLS_FACTOR = 1.7
# What the device takes for a framework's own kernels, as a whole, is told no better than this: their rates are of few models.
OWN_CODE_FACTOR = 1.15


def timed_prediction(run: Run) -> Prediction:
    """The prediction of a run that fits."""
    if run.brief and not run.interval:
        known = known_step(run)
        return _with_times(counted_prediction(run, known.executed, known.fidelity), known.timed)
    untimed = counted_prediction(run, run.executes, run.fidelity)
    timed = timed_part(run)
    if run.brief:
        return replace(untimed, timed=timed)
    return replace(
        untimed,
        timed=timed,
        provenance=_provenance(run),
        warnings=(*untimed.warnings, *_notes(run, timed)),
    )


def timed_part(run: Run) -> Timed:
    """The step of a run and where its time goes."""
    timeline = run.timeline
    step = timeline.duration
    matrix = matrix_flops(run)
    most = step * matrix.peak
    return Timed(
        step_time_s=step,
        interval_s=interval_of(run) if run.interval else (step, step),
        breakdown=timeline.breakdown,
        communication_s=timeline.communication_busy,
        lead_s=leading_seconds(run),
        energy_j=energy_of(run),
        energy_by_part={} if run.brief else _energy_by_part(run),
        mfu=matrix.model / most if most else 0.0,
        hfu=matrix.total / most if most else 0.0,
        model_flops=matrix.model,
        matrix_types=matrix.types,
        top_kernels=() if run.brief else top_kernels(run),
        collectives=() if run.brief else collective_shares(run),
        communication=communication_summary(run) if run.devices > 1 and not run.brief else None,
        ranks=rank_shares(run.ranks) if run.ranks is not None else (),
        timeline=None if run.brief else timeline,
    )


def energy_of(run: Run) -> float:
    """Joules of a step of one device, those of its idle power among them."""
    timeline, clocks = run.timeline, run.options.estimate.clocks
    step = timeline.duration
    return capped_energy(timeline.energy + idle_watts(run.device) * step, step, run.device, clocks)


def _energy_by_part(run: Run) -> dict[str, float]:
    """Joules by part of a device whose kernels its model of cells has all timed, and what it draws idle; else nothing."""
    if run.device.cells is None or set(run.kernels.estimators) != {"analytical"}:
        return {}
    parts: defaultdict[str, float] = defaultdict(float)
    for kernel, count in zip(run.executes.computing, run.executes.counts.tolist(), strict=True):
        for part, joules in energy_by_part(kernel, run.device).items():
            parts[part] += count * joules
    return {**parts, "idle": max(0.0, energy_of(run) - sum(parts.values()))}


def main_fidelity(run: Run) -> str:
    """The fidelity that most of the computing time comes from; `compiled` where that was asked for."""
    if run.options.estimate.fidelity == "compiled":
        return "compiled"
    seconds: defaultdict[str, float] = defaultdict(float)
    kernels, executes = run.kernels, run.executes
    if len(kernels.estimators) == 1:  # whatever their times are
        seconds.update(dict.fromkeys(kernels.estimators if executes.computing else (), 1.0))
    else:
        for kernel, count in zip(executes.computing, executes.counts.tolist(), strict=True):
            estimate = kernels[kernel]
            seconds[estimate.estimator] += count * estimate.time
    by_name = {estimator.name: estimator.fidelity for estimator in run.estimators}
    return by_name[max(seconds, key=lambda name: seconds[name])] if seconds else run.estimators[0].fidelity


def _notes(run: Run, timed: Timed) -> list[str]:
    """What to say about times: who answered for kernels, what was asked in vain, and the power cap."""
    notes = [*run.kernels.warnings, *_fallback_notes(run), *run.setting_notes, *speeds_without_effect(run)]
    notes += pace_without_effect(run)
    notes += nothing_launched(run.lowered, run.host)
    notes += noise_notes(run)
    if timed.mfu is not None and not within_peak(timed.mfu):
        notes.append(
            f"MFU of {percent(timed.mfu)}: {run.fidelity} gives products less time than the device's peak allows"
        )
    step, watts = timed.step_time_s, run.device.tdp_watts
    energy = timed.energy_j or 0.0
    if run.options.estimate.clocks == "burst" and step and energy / step > watts:
        notes.append(
            f"average power of {energy / step:.0f} W is above the {watts:.0f} W cap: "
            "a sustained run clocks down and takes longer"
        )
    elif run.clock_share < 1:
        clock = run.device.clock_hz / 1e6
        capped = run.clock_share * run.device.clock_hz / 1e6
        notes.append(f"the {watts:.0f} W power cap lowers the clock to {capped:.0f} of {clock:.0f} MHz")
    return notes


def _fallback_notes(run: Run) -> list[str]:
    """What to say where another fidelity than the one asked for gives most of the time."""
    asked = run.options.estimate.fidelity
    if asked in ("auto", "compiled") or run.fidelity == asked:
        return []
    return [f"most of the step is timed by {run.fidelity}: {asked} does not model the kernels that take it"]


def interval_of(run: Run) -> tuple[float, float]:
    """The step simulated with every kernel at its lower, and at its upper end."""
    ends = []
    framework = run.lowered.workload.step is not None and bool(run.host)
    host_factor = CALLS_FACTOR if framework else HOST_FACTOR
    for end, factor, start_s in (
        ("low", 1 / NETWORK_FACTOR, -NETWORK_START_S),
        ("high", NETWORK_FACTOR, NETWORK_START_S),
    ):
        shifted = {key: e.taking(getattr(e, end)) for key, e in run.kernels.by_key.items()}
        network = OnNetwork(model=run.network_model, factor=factor, start_s=start_s)
        device = _duration(run, replace(run.kernels, by_key=shifted), network)
        waited = _waited(run, device)
        slower = 1 / host_factor if end == "low" else host_factor
        if framework:
            least, most = OWN_CODE_FACTOR**-1, OWN_CODE_FACTOR
            full = {
                key: e.taking(min(e.low, e.time * least) if end == "low" else max(e.high, e.time * most))
                for key, e in run.full_clock.by_key.items()
            }
            issuing = issued_at(run, replace(run.full_clock, by_key=full), slower)
        else:
            issuing = (run.host - run.asking[0]) * slower if run.host else 0.0
        ends.append(issuing if framework else max(device + run.pauses, issuing + waited))
    return min(ends[0], run.timeline.duration), max(ends[1], run.timeline.duration)


def _waited(run: Run, device: float) -> float:
    """Seconds of loops that end on data, in which the host waits for the device; the whole step takes the device so long."""
    whole, computing = run.asking if run.host else (0.0, 0.0)
    if not computing:
        return whole
    return whole - computing + computing * device / _duration(run, run.kernels, run.network)


def _duration(run: Run, kernels: KernelTimes, network: KernelNetwork) -> float:
    """Seconds of the step with other times, until the slowest rank is done; host and pauses are not counted."""
    alone = run.simulator.duration(kernels, network)
    if run.speeds is None:
        return alone
    return max(alone, simulate_classes(run.simulator, kernels, network, run.speeds).duration)


def _provenance(run: Run) -> Provenance:
    """Shares of busy time by origin."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for span, count in run.timeline.walk():
        collective = span.kernel.collective is not None
        origin = run.network_model.origin if collective else run.kernels[span.kernel].origin.value
        seconds[origin] += count * (span.end - span.start)
    total = sum(seconds.values())
    return Provenance(**{k: v / total for k, v in seconds.items()}) if total else Provenance(analytical=1.0)


_with_times = copier(Prediction, "timed")
