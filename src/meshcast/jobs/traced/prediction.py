"""A prediction from traces: all ranks replayed, and the one that ends last laid out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from meshcast.base import VERSION, InputError
from meshcast.estimate import Estimator
from meshcast.hardware import Cluster
from meshcast.jobs.program.feasibility import memory_verdict
from meshcast.jobs.traced.agreement import check_agreement
from meshcast.jobs.traced.caveats import at_home, caveats
from meshcast.jobs.traced.files import TraceFiles
from meshcast.jobs.traced.kernels import kernel_of
from meshcast.jobs.traced.ranks import TracedRanks, read_traced, with_speeds
from meshcast.jobs.traced.replay import Replayed
from meshcast.jobs.traced.steps import TraceStep
from meshcast.jobs.traced.timing import Timing, collective_of, time_steps
from meshcast.jobs.traced.windows import step_windows
from meshcast.network import NETWORK_FACTOR, arranged, network_model
from meshcast.options import Options
from meshcast.results import KernelShare, Prediction, Provenance, Timed
from meshcast.simulate import Breakdown, Interval, MemoryUse, covered, merged, rank_speeds

MOST_KERNELS = 20
UNKNOWN = "not known"


def predict_traces(
    files: TraceFiles, options: Options, cluster: Cluster, estimators: Sequence[Estimator]
) -> Prediction:
    """How the job of some traces will run.

    Unlike programs, a job of traces is timed also where it does not fit: its counts are those of the rank that ends last, its
    fidelity and provenance are shares of the time, and that nothing in it takes time is found out by a replay alone. What lasts
    beyond the replay (breakdown, interval, kernels) is left out of such an answer.

    Args:
        files: Its traces.
        options: Everything else it depends on.
        cluster: The hardware.
        estimators: What answers for compute, where it is not replayed.

    Raises:
        InputError: A trace is malformed, or its ranks do not fit together.
        UnsupportedError: No model answers for a node.
    """
    job = read_traced(files)
    check_agreement(job)
    device = cluster.device
    cluster.for_devices(job.ranks)  # refuses more than there are
    setting, said = arranged(options.network.arrangement, cluster, job.ranks, {})
    speeds = rank_speeds(setting, job.ranks)
    if speeds is not None:
        job = with_speeds(job, speeds.tolist())
    timing, run = time_steps(job, options, device, estimators, network_model(options.network.model, setting))
    if not run.duration:
        raise InputError(
            f"nothing in it takes time: none of {sum(map(len, job.steps))} nodes has a duration (duration_micros, duration_ns) "
            "or communicates", where=job.sources[0].where,
            fix="record durations: of PyTorch, link the host's trace with the device's before it is converted",
        )  # fmt: skip
    windows = step_windows(job, run)
    last = max(range(len(windows)), key=lambda number: windows[number][1] - windows[number][0])
    memory, capacity = _memory(job), int(device.memory_bytes)
    # What was recorded on this device has run there, whatever the trace's names add up to.
    at_ease = timing.replayed and at_home(job, device.name)
    steps = job.steps[last]
    infeasible, timed = None if at_ease else memory_verdict(memory, capacity, spread="recorded"), None
    if infeasible is None:
        timed = _timed(job, timing, run, last, windows[last])
    return Prediction(
        name=job.name, sha256=_digest(files), devices=job.ranks, mesh={"ranks": job.ranks}, device=device.name,
        cluster=cluster.name if job.ranks > 1 else None, fidelity=_fidelity(job, timing, estimators, last),
        lowering="given", network=options.network.model, infeasible=infeasible, timed=timed,
        flops=sum(step.flops for step in steps if not step.waits),
        hbm_bytes=float(sum(step.bytes for step in steps if not step.waits)),
        communication_bytes=_sent_bytes(job, last), memory=memory, capacity_bytes=capacity,
        kernels=sum(step.repeat for step in steps if step.does not in ("nothing", "host") and not step.waits),
        provenance=_provenance(job, timing), version=VERSION,
        warnings=(*caveats(job, timing, options, device, too_much=memory.peak > capacity), *said),
    )  # fmt: skip


def _timed(job: TracedRanks, timing: Timing, run: Replayed, number: int, window: Interval) -> Timed:
    """The step of one class and where its time goes."""
    seconds = window[1] - window[0]
    breakdown, communicating = _breakdown(job, timing, run, number, window)
    return Timed(
        step_time_s=seconds, interval_s=_spread(timing, seconds), breakdown=breakdown, communication_s=communicating,
        top_kernels=_top(job, timing, number),
    )  # fmt: skip


def _memory(job: TracedRanks) -> MemoryUse:
    """What the nodes of a rank name at most at a time, where they name anything."""
    known = [peak for peak in job.peaks if peak is not None]
    peak = max(known, default=0)
    return MemoryUse(peak=peak, arguments=0, outputs=0, temporaries=peak, aliased=0, by_role={}, known=bool(known))


def _sent_bytes(job: TracedRanks, number: int) -> int:
    """Bytes that a rank of a class sends."""
    sending = (step for step in job.steps[number] if step.does in ("collective", "send"))
    return round(sum(step.repeat * collective_of(job, number, step).sent_bytes for step in sending))


def _provenance(job: TracedRanks, timing: Timing) -> Provenance:
    """What was recorded, and what is modelled; what meshcast predicted once is no measurement."""
    total = timing.recorded_s + timing.modelled_s
    measured = timing.recorded_s / total if total and "device" not in job.metadata else 0.0
    return Provenance(measured=measured, analytical=1 - measured)


def _fidelity(job: TracedRanks, timing: Timing, estimators: Sequence[Estimator], number: int) -> str:
    """`trace` of what is replayed, else the fidelity that most of the computing time comes from."""
    if timing.replayed:
        return "trace"
    seconds: dict[str, float] = {estimators[0].name: 0.0}
    for step, each in zip(job.steps[number], timing.seconds[number], strict=True):
        if step.does == "compute" and not step.waits:
            name = timing.estimated[kernel_of(step)].estimator
            seconds[name] = seconds.get(name, 0.0) + each
    by_name = {estimator.name: estimator.fidelity for estimator in estimators}
    return by_name[max(seconds, key=lambda name: seconds[name])]


def _digest(files: TraceFiles) -> str:
    digest = hashlib.sha256()
    for path in dict.fromkeys(files.by_rank.values()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _breakdown(
    job: TracedRanks, timing: Timing, run: Replayed, number: int, window: Interval
) -> tuple[Breakdown, float]:
    """Where the time of one class goes from the start to the end of its step, and its seconds of communication."""
    compute = memory = waited = 0.0
    occupied: list[Interval] = []
    communicating: list[Interval] = []
    for index, step in enumerate(job.steps[number]):
        start, end = run.starts[number][index], run.ends[number][index]
        if step.does == "compute":
            occupied.append((start, end))
            seconds = timing.seconds[number][index]
            if step.waits:
                waited += seconds
            elif _limited_by(step, timing) in ("compute", UNKNOWN):
                compute += seconds
            else:
                memory += seconds
        elif step.does in ("collective", "send"):
            communicating.append((start, end))
    busy, left = covered([window], merged(occupied))
    exposed, rest = covered(left, merged(communicating))
    idle = sum(end - start for start, end in rest)
    total = compute + memory + waited or 1.0
    share = busy / total  # steps of several streams may compute at once
    parts = Breakdown(
        compute=compute * share, memory=memory * share, exposed_communication=exposed, idle=idle + waited * share
    )
    return parts, sum(end - start for start, end in communicating)


def _spread(timing: Timing, seconds: float) -> tuple[float, float]:
    """The step's interval: none of what is replayed, else the widest that estimates and the network have."""
    if not timing.modelled_s:
        return seconds, seconds
    if timing.replayed:  # all but some communication
        share = timing.modelled_s / (timing.recorded_s + timing.modelled_s)
        return seconds * (1 - share + share / NETWORK_FACTOR), seconds * (1 - share + share * NETWORK_FACTOR)
    known = [each for each in timing.estimated.by_key.values() if each.time > 0]
    total = sum(each.time for each in known)
    if not total:
        return seconds / NETWORK_FACTOR, seconds * NETWORK_FACTOR
    low = min(sum(each.low for each in known) / total, 1 / NETWORK_FACTOR)
    high = max(sum(each.high for each in known) / total, NETWORK_FACTOR)
    # Of a recording that is scaled the host's part was measured, and stays.
    share = timing.modelled_s / (timing.recorded_s + timing.modelled_s) if timing.scaled_from else 1.0
    return seconds * (1 - share + share * low), seconds * (1 - share + share * high)


def _limited_by(step: TraceStep, timing: Timing) -> str:
    """What bounds a step; of what says neither operations nor bytes that is not known."""
    return timing.estimated[kernel_of(step)].limited_by if step.says_work else UNKNOWN


def _top(job: TracedRanks, timing: Timing, number: int) -> tuple[KernelShare, ...]:
    totals: dict[str, list[float]] = {}
    bounds: dict[str, str] = {}
    for step, seconds in zip(job.steps[number], timing.seconds[number], strict=True):
        if step.does == "compute" and not step.waits:
            each = totals.setdefault(step.name, [0.0, 0.0])
            each[0] += seconds
            each[1] += step.repeat
            bounds[step.name] = _limited_by(step, timing)
    ranked = sorted(totals.items(), key=lambda item: -item[1][0])[:MOST_KERNELS]
    return tuple(
        KernelShare(name=name, count=round(count), seconds=seconds, limited_by=bounds[name], location="")
        for name, (seconds, count) in ranked
    )
