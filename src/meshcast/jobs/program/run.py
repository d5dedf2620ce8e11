"""`Run`: a lowered program on chosen hardware, from which every answer is worked out once and kept."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.base import VERSION, Rows, format_bytes, format_time, shown
from meshcast.estimate import EstimatedKernels, Estimator, estimate_kernels, idle_watts
from meshcast.hardware import Cluster, Device, host_rate
from meshcast.jobs.program.feasibility import memory_verdict
from meshcast.jobs.program.power_cap import capped_energy, settled_step
from meshcast.jobs.program.uneven_devices import speeds_of_kinds, speeds_without_effect
from meshcast.jobs.program.where_time_goes import collective_shares, communication_summary, matrix_flops, top_kernels
from meshcast.jobs.trust import with_trust
from meshcast.lower import NOTHING_PAIRED, Kernel, LoweredProgram, summing_launches
from meshcast.network import (
    NETWORK_FACTOR,
    NETWORK_START_S,
    CollectivePlan,
    NetworkModel,
    Setting,
    WholeJob,
    arranged,
    network_model,
    without_effect,
)
from meshcast.options import Options
from meshcast.results import Prediction, Provenance, rank_shares
from meshcast.simulate import (
    LOOSE_GAP,
    WHOLE_PROGRAM_LAUNCHES,
    ClassRun,
    Contention,
    KernelNetwork,
    KernelTimes,
    MemoryUse,
    OnNetwork,
    Simulator,
    Timeline,
    collective_of_kernel,
    host_seconds,
    loose_launches,
    nothing_launched,
    peak_memory,
    rank_speeds,
    simulate_classes,
)
from meshcast.workload import Collective, Workload

# Host time of the same program differs by this factor, either way, between the servers that we measured on.
HOST_FACTOR = 1.4


@shown
@dataclass(frozen=True, kw_only=True)
class Run:
    """A lowered program on chosen hardware: estimate, simulate and predict from here."""

    lowered: LoweredProgram
    cluster: Cluster
    devices: int
    estimators: tuple[Estimator, ...]
    options: Options
    notes: tuple[str, ...] = ()
    whole: bool = True  # a part of a step is not asked what has no effect on it
    job_devices: int | None = None  # of the job that it is a part of, where that has more

    def summary_rows(self) -> Rows:
        """What runs where, and how long and large it is."""
        return [
            ("program", self.workload.name),
            ("on", f"{self.devices} x {self.device.name}" + (f" ({self.cluster.name})" if self.devices > 1 else "")),
            ("launches", f"{self.lowered.kernel_count:,} in a step"),
            ("fidelity", self.fidelity),
            ("lowering", self.lowered.lowering),
            ("step", format_time(self.timeline.duration)),
            ("peak memory", f"{format_bytes(self.memory.peak)} of {format_bytes(self.device.memory_bytes)}"),
        ]

    @property
    def device(self) -> Device:
        """The device every rank runs on."""
        return self.cluster.device

    @property
    def workload(self) -> Workload:
        """The op graph behind the kernels."""
        return self.lowered.workload

    @cached_property
    def full_clock(self) -> EstimatedKernels:
        """Times of the compute kernels at the full clock."""
        named = self.options.estimate.simulator is not None
        return estimate_kernels(self.lowered, self.device, self.estimators, first_named=named)

    @cached_property
    def full_clock_timeline(self) -> Timeline:
        """The step at the full clock."""
        return self.paced(self.simulator.run(self.full_clock, self.network))

    @cached_property
    def _settled(self) -> tuple[float, Timeline]:
        """The clock that the power cap leaves the program, and the step at that clock."""
        return settled_step(self)

    @property
    def clock_share(self) -> float:
        """The clock that the power cap leaves the program, as a share of the full one."""
        return self._settled[0]

    @cached_property
    def kernels(self) -> EstimatedKernels:
        """Times of the compute kernels, at the clock that the power cap leaves."""
        return self.full_clock.at_clock(self.clock_share)

    @cached_property
    def _arranged(self) -> tuple[Setting, tuple[str, ...]]:
        counts: Counter[Collective] = Counter()
        for kernel, count in self.lowered.schedule.walk():
            if kernel.collective is not None:
                counts[kernel.collective] += count
        asked = self.options.network.arrangement
        speed = {**asked.conditions.speed, **speeds_of_kinds(self)}
        asked = replace(asked, conditions=replace(asked.conditions, speed=speed))
        setting, said = arranged(asked, self.cluster, self.devices, counts, self._step_in)
        if self.job_devices is not None:
            setting = replace(setting, part_of=WholeJob(cluster=self.cluster, devices=self.job_devices))
        if not self.whole:
            return setting, said
        # The catalogue's clusters may have more than a program needs; what a user has written should do something.
        own = self.options.own_hardware and bool(counts)
        return setting, (*said, *without_effect(self.options.network.model, setting, counts, levels=own))

    def _step_in(self, setting: Setting) -> float:
        """Seconds of the step, at the full clock, with collectives timed in another setting."""
        model = network_model(self.options.network.model, setting)
        simulator = Simulator(self.lowered, self.options.scheduling, self._contention_on(model), self._host_rate)
        return simulator.duration(self.full_clock, OnNetwork(model=model))

    @property
    def setting(self) -> Setting:
        """Where collectives run, with what is asked for about how."""
        return self._arranged[0]

    @cached_property
    def network_model(self) -> NetworkModel:
        """What answers for collectives."""
        return network_model(self.options.network.model, self.setting)

    @cached_property
    def network(self) -> OnNetwork:
        """Times of collective kernels, and what those under way at once make of each other."""
        return OnNetwork(model=self.network_model)

    def collective(self, kernel: Kernel) -> CollectivePlan:
        """How a collective kernel is carried out."""
        return self.network_model.plan(collective_of_kernel(kernel))

    @cached_property
    def contention(self) -> Contention | None:
        """What collectives take from compute; None where there is nothing to take, or it is not asked for."""
        return self._contention_on(self.network_model)

    def _contention_on(self, model: NetworkModel) -> Contention | None:
        if self.options.run.contention == "off" or self.devices == 1:
            return None
        return Contention(
            device=self.device, in_network=lambda kernel: model.plan(collective_of_kernel(kernel)).in_network
        )

    @cached_property
    def simulator(self) -> Simulator:
        """The program planned once, to be run with any times."""
        return Simulator(self.lowered, self.options.scheduling, self.contention, self._host_rate)

    @property
    def _host_rate(self) -> float:
        """Bytes/s of the link to the host's memory; it is asked for where something moves over it alone."""
        return host_rate(self.device) if self.options.lowering.rewrites.offload else math.inf

    @cached_property
    def timeline(self) -> Timeline:
        """When everything runs on one rank; the device waits, idle, where the host cannot issue fast enough."""
        if not self.delay:
            return self._settled[1]
        return self.paced(self.simulator.run(self.kernels, self.network), self.delay)

    @cached_property
    def speeds(self) -> npt.NDArray[np.float64] | None:
        """The speed of every rank; None where all devices are at full speed."""
        return rank_speeds(self.setting, self.devices)

    @cached_property
    def ranks(self) -> ClassRun | None:
        """The step of ranks that are not alike; None where all are."""
        if self.speeds is None:
            return None
        return simulate_classes(self.simulator, self.kernels, self.network, self.speeds)

    @cached_property
    def delay(self) -> float:
        """Seconds that slow devices add to the step."""
        if self.ranks is None:
            return 0.0
        return max(0.0, self.ranks.duration - self.simulator.duration(self.kernels, self.network))

    def duration(self, kernels: KernelTimes, network: KernelNetwork) -> float:
        """Seconds of the step with other times, until the slowest rank is done; host and pauses are not counted."""
        alone = self.simulator.duration(kernels, network)
        if self.speeds is None:
            return alone
        return max(alone, simulate_classes(self.simulator, kernels, network, self.speeds).duration)

    def paced(self, timeline: Timeline, delay: float = 0.0) -> Timeline:
        """A timeline with the pauses of launches outside of CUDA graphs, and the wait for slower devices.

        It lasts at least as long as the host needs, which issues the next kernels while devices wait.
        """
        paused = timeline.lasting(timeline.duration + self.pauses)
        return paused.lasting(paused.duration + delay, "waiting for slower devices").lasting(self.host)

    @cached_property
    def pauses(self) -> float:
        """Seconds between launches outside of CUDA graphs."""
        if not self.host:
            return 0.0
        graphs = self.options.run.host_costs is None or self.options.run.host_costs.graphs
        return loose_launches(self.lowered.schedule, graphs=graphs) * LOOSE_GAP * self.device.launch_latency_s

    @cached_property
    def host(self) -> float:
        """Seconds that the host needs to issue a step, 0 where it is not counted.

        It is not for models that know no launches (the speed of light), and unless told otherwise for programs of a few
        kernels, which are taken for a part of a larger program. Of one that launches nothing it is all there is.
        """
        count, first = self.lowered.kernel_count, self.estimators[0].fidelity
        launches = self.device.kind == "gpu" and (self.full_clock.gap > 0 if count else first != "roofline")
        whole = self.options.run.host == "on" or count >= WHOLE_PROGRAM_LAUNCHES or not count
        costs = self.options.run.host_costs
        return host_seconds(self.lowered, costs) if launches and whole and self.options.run.host != "off" else 0.0

    @cached_property
    def executed(self) -> tuple[tuple[Kernel, int], ...]:
        """Every kernel that runs, with how often: loops multiplied, of branches the costlier one."""
        return tuple((span.kernel, count) for span, count in self.timeline.walk())

    @cached_property
    def memory(self) -> MemoryUse:
        """What one device must hold; all of what a compiler found too much."""
        found, overflow = peak_memory(self.lowered, self.device), self.lowered.overflow
        if overflow is None:
            return found
        held = found.arguments + found.outputs - found.aliased
        return replace(found, peak=max(overflow.demand, held), temporaries=max(0, overflow.demand - held))

    def predict(self) -> Prediction:
        """The prediction, or an infeasible one without a time."""
        started = time.perf_counter()
        workload, memory = self.workload, self.memory
        overflow = self.lowered.overflow
        capacity = overflow.bound if overflow is not None else int(self.device.memory_bytes)
        infeasible = memory_verdict(memory, capacity, overflow)
        counted = self.executed
        prediction = Prediction(
            name=workload.name,
            sha256=workload.sha256,
            devices=self.devices,
            mesh=workload.mesh.sizes,
            device=self.device.name,
            cluster=self.cluster.name if self.devices > 1 else None,
            fidelity=self.fidelity,
            lowering=self.lowered.lowering,
            network=self.options.network.model,
            infeasible=infeasible,
            step_time_s=None,
            interval_s=None,
            breakdown=None,
            flops=workload.totals.flops,
            hbm_bytes=float(sum(n * (k.read_bytes + k.written_bytes) for k, n in counted if k.collective is None)),
            communication_bytes=round(sum(n * k.collective.sent_bytes for k, n in counted if k.collective is not None)),
            memory=memory,
            capacity_bytes=capacity,
            energy_j=None,
            mfu=None,
            hfu=None,
            kernels=sum(n for _, n in counted) + self._sums,
            communication_s=None,
            provenance=Provenance(analytical=1.0),
            warnings=(*workload.warnings, *self.notes, *self._idle),
            facts=workload.facts,
            version=VERSION,
        )
        answer = prediction if infeasible else self._timed(prediction)
        if self.whole:
            answer = with_trust(answer, self.cluster, self.options)
        return replace(answer, seconds=time.perf_counter() - started)

    @property
    def _sums(self) -> int:
        return summing_launches(self.lowered, self.device.cores, self.device.architecture)

    @property
    def fidelity(self) -> str:
        """The fidelity that most of the computing time comes from; `compiled` where that was asked for."""
        if self.options.estimate.fidelity == "compiled":
            return "compiled"
        seconds: defaultdict[str, float] = defaultdict(float)
        for kernel, count in self.executed:
            if kernel.collective is None:
                estimate = self.kernels[kernel]
                seconds[estimate.estimator] += count * estimate.time
        by_name = {estimator.name: estimator.fidelity for estimator in self.estimators}
        return by_name[max(seconds, key=lambda name: seconds[name])] if seconds else self.estimators[0].fidelity

    def _timed(self, prediction: Prediction) -> Prediction:
        timeline = self.timeline
        step = timeline.duration
        energy = capped_energy(
            timeline.energy + idle_watts(self.device) * step, step, self.device, self.options.estimate.clocks
        )
        notes = [*self.kernels.warnings, *self._fallback_notes(), *self._arranged[1], *speeds_without_effect(self)]
        notes += nothing_launched(self.lowered, self.host)
        if self.options.estimate.clocks == "burst" and step and energy / step > self.device.tdp_watts:
            notes.append(
                f"average power of {energy / step:.0f} W is above the {self.device.tdp_watts:.0f} W cap: "
                "a sustained run clocks down and takes longer"
            )
        elif self.clock_share < 1:
            notes.append(
                f"the {self.device.tdp_watts:.0f} W cap leaves {self.clock_share * self.device.clock_hz / 1e6:.0f} of "
                f"{self.device.clock_hz / 1e6:.0f} MHz"
            )
        matrix = matrix_flops(self)
        most = step * matrix.peak
        return replace(
            prediction,
            step_time_s=step,
            interval_s=self._interval(),
            breakdown=timeline.breakdown,
            energy_j=energy,
            mfu=matrix.model / most if most else 0.0,
            hfu=matrix.total / most if most else 0.0,
            model_flops=matrix.model,
            matrix_types=matrix.types,
            communication_s=timeline.communication_busy,
            provenance=self._provenance(),
            top_kernels=top_kernels(self),
            collectives=collective_shares(self),
            communication=communication_summary(self) if self.devices > 1 else None,
            timeline=timeline,
            ranks=rank_shares(self.ranks) if self.ranks is not None else (),
            warnings=(*prediction.warnings, *notes),
        )

    @property
    def _idle(self) -> tuple[str, ...]:
        """What to say of `--overlap` where the user asked for it in vain: one program has no passes to pair, either."""
        if not self.whole or "overlap" not in self.options.asked:
            return ()
        return (*self.lowered.idle, *((NOTHING_PAIRED,) if self.options.lowering.rewrites.paired_passes else ()))

    def _fallback_notes(self) -> list[str]:
        """What to say where another fidelity than the one asked for gives most of the time."""
        asked = self.options.estimate.fidelity
        if asked in ("auto", "compiled") or self.fidelity == asked:
            return []
        return [f"most of the time is {self.fidelity}: {asked} does not answer for the kernels that take it"]

    def _interval(self) -> tuple[float, float]:
        """The step simulated with every kernel at its lower, and at its upper end."""
        ends = []
        for end, factor, start_s in (
            ("low", 1 / NETWORK_FACTOR, -NETWORK_START_S),
            ("high", NETWORK_FACTOR, NETWORK_START_S),
        ):
            shifted = {key: replace(e, time=getattr(e, end)) for key, e in self.kernels.by_key.items()}
            network = OnNetwork(model=self.network_model, factor=factor, start_s=start_s)
            duration = self.duration(replace(self.kernels, by_key=shifted), network) + self.pauses
            ends.append(max(duration, self.host * (1 / HOST_FACTOR if end == "low" else HOST_FACTOR)))
        return min(ends[0], self.timeline.duration), max(ends[1], self.timeline.duration)

    def _provenance(self) -> Provenance:
        """Shares of busy time by origin."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for span, count in self.timeline.walk():
            collective = span.kernel.collective is not None
            origin = self.network_model.origin if collective else self.kernels[span.kernel].origin.value
            seconds[origin] += count * (span.end - span.start)
        total = sum(seconds.values())
        return Provenance(**{k: v / total for k, v in seconds.items()}) if total else Provenance(analytical=1.0)
