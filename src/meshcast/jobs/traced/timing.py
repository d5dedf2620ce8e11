"""Seconds of a trace's steps: as the trace has them, or worked out again on a device and its network.

Compute is estimated from what `jobs.traced.kernels` knows of it. Waits take as long as they took. What was recorded on a device
of the catalogue is not estimated anew but scaled, as Habitat does with measured kernels (Yu et al., USENIX ATC 2021):

    t = t_recorded * estimate on the device / estimate on the device that it was recorded on

so that what the estimate does not know of a kernel counts only as far as it changes from one device to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from meshcast.base import Group, Mesh, UnsupportedError
from meshcast.chakra import RECORDED_ON
from meshcast.estimate import EstimatedKernels, Estimator, estimate_each
from meshcast.hardware import Device, host_rate, load_device
from meshcast.jobs.traced.clocks import settled_clocks
from meshcast.jobs.traced.contention import Beside, Seconds
from meshcast.jobs.traced.home import home_of
from meshcast.jobs.traced.kernels import kernel_of
from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.replay import Replayed, replay
from meshcast.jobs.traced.steps import BARRIER, ROOTED, TraceStep
from meshcast.network import NetworkModel
from meshcast.options import Options, chosen_estimators
from meshcast.simulate import Contention, OnNetwork, SpeedShares, collective_of_kernel
from meshcast.workload import DTYPE_BITS, Collective, group_of_ids

NETWORK = "network"  # the durations of communication alone are worked out


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of all steps, by class, and where they come from.

    Attributes:
        seconds: By class and step.
        estimated: Answers for compute, where it was estimated; also used to tell what bounds a kernel.
        replayed: Whether compute is as the trace has it.
        recorded_s: Seconds of all steps that the trace has itself; `modelled_s` of all others.
        guessed_dtype: Whether types of arithmetic had to be assumed.
        scaled_from: The device that compute was recorded on and is scaled from; "" where it is not scaled.
        clocks: The clock of every class as a share of the full one: what the power cap leaves, where compute is estimated.
    """

    seconds: tuple[tuple[float, ...], ...]
    estimated: EstimatedKernels
    replayed: bool
    recorded_s: float
    modelled_s: float
    guessed_dtype: bool
    clocks: tuple[float, ...]
    scaled_from: str = ""


def uses_recorded(durations: str, job: TracedRanks, device: Device) -> bool:
    """Whether durations are the trace's own, those of communication perhaps not."""
    if durations != "auto":
        return durations in ("trace", NETWORK)
    said = home_of(job.metadata)
    # What says neither how long it takes nor what it does took less than the microsecond that it was rounded to.
    working = [step for steps in job.steps for step in steps if step.does == "compute" and step.says_work]
    timed = all(step.seconds is not None for step in working)
    return timed and (said is None or said == device.name)


def time_steps(
    job: TracedRanks, options: Options, device: Device, estimators: Sequence[Estimator], network: NetworkModel
) -> tuple[Timing, Replayed]:
    """The seconds of all steps, and when they run.

    Raises:
        UnsupportedError: The trace does not say how long a step took, nor what it does.
        InputError: Ranks wait for each other for ever.
    """
    replayed = uses_recorded(options.run.durations, job, device)
    # In the order of the trace: sums over estimates would differ in their last bits from run to run with a set's.
    found = (step for steps in job.steps for step in steps if step.does == "compute" and not step.waits)
    working = list(dict.fromkeys(found))
    if not replayed and working and not any(step.says_work for step in working):
        raise UnsupportedError(
            f"none of {len(working)} different compute nodes says what it does (num_ops, tensor_size): there is nothing to "
            "work out", where=job.name, fix="replay what was recorded: --durations trace",
        )  # fmt: skip
    estimated = estimate_each(
        map(kernel_of, working), device, estimators, 
        first_named=options.estimate.simulator is not None,
    ).holding(options.estimate.data)  # fmt: skip
    timed = _TimedSteps(
        job=job, estimated=estimated, replayed=replayed, network=network, device=device,
        sent_again=options.run.durations == NETWORK, at_home=None if replayed else _at_home(job, options, working),
    )  # fmt: skip

    def run_at(clocks: tuple[float, ...], speeds: tuple[float, ...]) -> tuple[Timing, Replayed]:
        def replayed_with(seconds: Seconds) -> Replayed:
            return replay(job, seconds, shared=options.run.channels == 1)

        timing = timed.at(clocks, speeds)
        seconds: Seconds = timing.seconds
        if replayed or options.run.contention == "off" or not any(step.kernel for step in working):
            run = replayed_with(seconds)
        else:
            beside = Beside(job=job, rates=_rates(device, network), collective=partial(collective_of, job))
            seconds, run = beside.settled(seconds, [estimated.at_clock(share) for share in clocks], replayed_with)
        if not replayed and any(step.until is not None for steps in job.steps for step in steps):
            seconds = _with_hosts(job, seconds, run, launches=device.kind == "gpu")
            run = replayed_with(seconds)
        return replace(timing, seconds=tuple(map(tuple, seconds))), run

    full = (1.0,) * len(job.classes)
    if replayed:
        return run_at(full, job.speeds)
    timing, run = run_at(full, full)  # a device that is slow for other reasons does not draw less for it
    clocks = settled_clocks(job, run, estimated, device, options.estimate.clocks)
    return (timing, run) if clocks == job.speeds == full else run_at(clocks, job.speeds)


def _at_home(job: TracedRanks, options: Options, working: Sequence[TraceStep]) -> EstimatedKernels | None:
    """Estimates of a recorded job's compute on the device that it ran on; None where that is not known, or has no model."""
    home = home_of(job.metadata) if RECORDED_ON in job.metadata else None
    if home is None:
        return None
    try:
        device = load_device(home)
        estimators, _ = chosen_estimators(options, device)
        return estimate_each(map(kernel_of, working), device, estimators).holding(options.estimate.data)
    except UnsupportedError:
        return None


def _with_hosts(job: TracedRanks, seconds: Seconds, run: Replayed, *, launches: bool) -> Seconds:
    """Seconds with those of waits for the host: what is left of its time when the device is done with a program.

    Where the host does not launch kernels one by one there is nothing to wait for.
    """
    found: list[list[float]] = []
    for steps, of_class, starts in zip(job.steps, seconds, run.starts, strict=True):
        begun = 0.0
        found.append([])
        for step, one, start in zip(steps, of_class, starts, strict=True):
            begun = start if step.begins else begun
            if step.until is not None:
                one = max(step.least, step.until - (start - begun)) if launches else 0.0
            found[-1].append(one)
    return found


def _rates(device: Device, network: NetworkModel) -> SpeedShares:
    """What ranks of a trace that lists its kernels leave each other; as `run.Run` has it of a program."""
    taken = Contention(device=device, in_network=lambda kernel: network.plan(collective_of_kernel(kernel)).in_network)
    return SpeedShares(network=OnNetwork(model=network), contention=taken)


@dataclass(slots=True, kw_only=True)
class _TimedSteps:
    """Steps of a job that are asked for their seconds at several clocks; `sent_again` if communication is not replayed."""

    job: TracedRanks
    estimated: EstimatedKernels
    replayed: bool
    network: NetworkModel
    device: Device
    sent_again: bool = False
    at_home: EstimatedKernels | None = None
    _on_network: dict[tuple[int, TraceStep], float] = field(default_factory=dict)

    def at(self, clocks: tuple[float, ...], speeds: tuple[float, ...]) -> Timing:
        """All of them, with every class at its clock and a share of its speed."""
        by_class = []
        recorded = modelled = 0.0
        for number, steps in enumerate(self.job.steps):
            estimated = self.estimated.at_clock(clocks[number])
            seconds = []
            speed = speeds[number]
            longer = 1.0 if self.replayed else self._longer(steps, estimated)
            for index, step in enumerate(steps):
                known = self._known(number, index, step)
                if known is not None:
                    known *= longer if step.does == "host" and step.waits else 1.0
                    known /= speed if _follows_speed(step) else 1.0
                    recorded += known
                elif step.does in ("collective", "send"):
                    known = self._communicating(number, step)
                    modelled += known
                elif step.host_bytes:
                    known = step.host_bytes / host_rate(self.device)
                    modelled += known
                else:
                    known = self._computing(step, estimated, speed)
                    modelled += known
                seconds.append(known)
            by_class.append(tuple(seconds))
        steps_of_all = {step for steps in self.job.steps for step in steps if step.does == "compute" and not step.waits}
        return Timing(
            seconds=tuple(by_class), estimated=self.estimated, replayed=self.replayed, recorded_s=recorded,
            modelled_s=modelled, clocks=clocks, scaled_from=(home_of(self.job.metadata) or "") if self.at_home else "",
            guessed_dtype=not self.replayed and any(step.dtype not in DTYPE_BITS for step in steps_of_all),
        )  # fmt: skip

    def _longer(self, steps: Sequence[TraceStep], estimated: EstimatedKernels) -> float:
        """How many times what was recorded the compute of a rank takes: so do timers that stand for its progress."""
        working = [s for s in steps if s.does == "compute" and not s.waits and s.says_work and s.seconds]
        recorded = sum(step.seconds or 0.0 for step in working)
        return sum(self._computing(step, estimated) for step in working) / recorded if recorded else 1.0

    def _computing(self, step: TraceStep, estimated: EstimatedKernels, speed: float = 1.0) -> float:
        """Seconds of a step at a share of the full speed; gaps between kernels are the host's, and stay."""
        kernel = kernel_of(step)
        seconds = estimated[kernel].time / speed
        if self.at_home is not None and step.seconds and (before := self.at_home[kernel].time):
            return step.seconds * seconds / before
        return step.repeat * (seconds + (estimated.gap if seconds else 0.0))

    def _known(self, number: int, index: int, step: TraceStep) -> float | None:
        """Seconds that the trace has, where they count.

        Raises:
            UnsupportedError: They are to be replayed, and the trace has none.
        """
        if step.does in ("receive", "nothing"):
            return 0.0
        if step.does in ("collective", "send") or step.host_bytes:
            again = self.sent_again and not step.host_bytes
            return step.seconds if self.replayed and not again else None
        if self.replayed or step.waits or not step.says_work or step.does == "host":
            if step.seconds is None and self.replayed and step.does == "compute" and step.says_work:
                rank = self.job.classes[number]
                raise UnsupportedError(
                    f"{self.job.named(rank, index)} has no duration to replay", where=self.job.sources[rank].where,
                    fix="work them out on a device: --durations estimated",
                )  # fmt: skip
            return step.seconds or 0.0
        return None

    def _communicating(self, number: int, step: TraceStep) -> float:
        key = number, step
        if key not in self._on_network:
            collective = collective_of(self.job, number, step)
            met = collective.group.size > 1
            self._on_network[key] = step.repeat * self.network.seconds(collective) if met else 0.0
        return self._on_network[key]


def _follows_speed(step: TraceStep) -> bool:
    """Whether a step takes longer on a slow device: what computes, and timers of the host that stand for compute."""
    return (step.does == "compute" and not step.waits) or (step.does == "host" and step.waits)


def collective_of(job: TracedRanks, number: int, step: TraceStep) -> Collective:
    """The collective or message of a step, one launch of it, as a class's lowest rank has it."""
    rank, size = job.classes[number], step.size // step.repeat
    if step.does == "send":
        peer = rank + 1 if job.alone else job.peers_of[rank][step.peer]
        pair = Group(dims=((2, abs(peer - rank)),), first=min(peer, rank))
        return Collective(kind="collective_permute", group=pair, input_bytes=size, output_bytes=size)
    members = job.groups[job.groups_of[rank][int(step.group)]]
    group = _group(members, job.ranks)
    if step.kind == BARRIER:  # as libraries make one: the smallest sum that all wait for
        return Collective(kind="all_reduce", group=group, input_bytes=1, output_bytes=1)
    if step.kind in ROOTED.values():
        # The root's port carries what every port carries in an all-gather: the shard of each other rank, in or out.
        shard = size if step.kind == "gather" else size // len(members)
        return Collective(kind="all_gather", group=group, input_bytes=shard, output_bytes=shard * len(members))
    after = {"all_gather": size * len(members), "reduce_scatter": size // len(members)}.get(step.kind, size)
    return Collective(kind=step.kind, group=group, input_bytes=size, output_bytes=after)


@lru_cache(maxsize=4096)
def _group(members: tuple[int, ...], ranks: int) -> Group:
    """Ranks as a group; a job has thousands of collectives over a few groups, and asks about each in every round."""
    return group_of_ids(members, Mesh.of({"ranks": ranks}))
