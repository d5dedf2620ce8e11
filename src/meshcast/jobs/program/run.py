"""`Run`: a lowered program on chosen hardware, from which every answer is worked out once and kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from meshcast.base import Rows, copier, format_bytes, format_time, larger, shown, whole_part
from meshcast.estimate import EstimatedKernels, Estimator, estimate_kernels, kernels_at_points, light_seconds
from meshcast.hardware import Cluster, Device, devices_of, points_of
from meshcast.jobs.program.data_loops import with_data_loops
from meshcast.jobs.program.feasibility import Spread, held_memory, memory_verdict
from meshcast.jobs.program.host_time import asking_seconds, issuing_seconds, paused_timeline, pausing_seconds
from meshcast.jobs.program.on_network import arranged_run, contention_on, simulator_on
from meshcast.jobs.program.power_cap import settled_step
from meshcast.jobs.program.timed import main_fidelity, timed_prediction
from meshcast.jobs.program.untimed import untimed_prediction
from meshcast.jobs.trust import with_trust
from meshcast.lower import Kernel, LoweredProgram
from meshcast.network import CollectivePlan, NetworkModel, Setting, network_model
from meshcast.options import Options
from meshcast.results import Infeasible, Prediction
from meshcast.simulate import (
    ClassRun,
    Contention,
    Executed,
    MemoryUse,
    OnNetwork,
    Rank,
    Simulator,
    Timeline,
    collective_of_kernel,
    rank_again,
    rank_speeds,
    simulate_classes,
)
from meshcast.workload import Workload


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
    interval: bool = True  # whether the ends of the step's interval are asked for, and what a turn of loops takes
    brief: bool = (
        False  # whether the step is all that is asked for: no tables of kernels and collectives, no critical path
    )
    estimated: EstimatedKernels | None = field(
        default=None, repr=False
    )  # at the full clock, where they are known already

    def summary_rows(self) -> Rows:
        """Rows with the program, its hardware, its step time and its memory."""
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
        if self.estimated is not None:
            return self.estimated
        asked = self.options.estimate
        named = asked.simulator is not None
        if devices_of(self.device) is not None:
            return kernels_at_points(  # type: ignore[return-value]
                self.lowered, self.device, self.estimators, first_named=named, values=asked.data
            )
        return estimate_kernels(self.lowered, self.device, self.estimators, first_named=named).holding(asked.data)

    @cached_property
    def several(self) -> int | None:
        """Of how many points of a sweep its numbers are, which stand in columns then; None where it is one."""
        if not self.brief or self.interval:
            return None
        levels = self.cluster.levels
        return points_of(self.device, levels[: sum([level.size < self.devices for level in levels]) + 1])

    @cached_property
    def full_clock_timeline(self) -> Timeline:
        """The step at the full clock."""
        rank = self.simulator.with_times(self.full_clock, self.network)
        return self.paced(self.simulator.timeline(rank, paths=not self.brief))

    @cached_property
    def _settled(self) -> tuple[float, EstimatedKernels, Rank]:
        """The clock that the power cap leaves the program, its kernels and its rank at that clock."""
        return settled_step(self)

    def rank_with(self, kernels: EstimatedKernels) -> Rank:
        """One rank with times of kernels; one of a sweep along what is known of its program's simulations."""
        if self.brief and not self.interval:
            return rank_again(self.simulator, kernels, self.network, self.several)
        return self.simulator.with_times(kernels, self.network)

    @property
    def clock_share(self) -> float:
        """The clock that the power cap leaves the program, as a share of the full one."""
        return self._settled[0]

    @property
    def kernels(self) -> EstimatedKernels:
        """Times of the compute kernels, at the clock that the power cap leaves."""
        return self._settled[1]

    @cached_property
    def _arranged(self) -> tuple[Setting, tuple[str, ...]]:
        return arranged_run(self)

    @property
    def setting(self) -> Setting:
        """The network that collectives run on, with the state and placement that are asked for."""
        return self._arranged[0]

    @property
    def setting_notes(self) -> tuple[str, ...]:
        """Notes on the network that collectives run on."""
        return self._arranged[1]

    @cached_property
    def network_model(self) -> NetworkModel:
        """The network model that times collectives."""
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
        """The cores and bandwidth that collectives take from compute; None where they take nothing, or contention is off."""
        return contention_on(self, self.network_model)

    @cached_property
    def simulator(self) -> Simulator:
        """The program planned once, to be run with any times."""
        return simulator_on(self, self.contention)

    @cached_property
    def timeline(self) -> Timeline:
        """When everything runs on one rank; the device waits, idle, where the host cannot issue fast enough."""
        whole = self._unpaused.duration + self.pauses
        return self._waiting(self.device_timeline.lasting(whole), self.delay)

    @cached_property
    def device_timeline(self) -> Timeline:
        """The same without what the device waits for at the step's end; of a brief run without the pauses of launches."""
        return self._unpaused if self.brief else paused_timeline(self, self._unpaused)

    @cached_property
    def _unpaused(self) -> Timeline:
        told = not self.brief
        return self.simulator.timeline(self._settled[2], spans=told, paths=told)

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

    def paced(self, timeline: Timeline) -> Timeline:
        """A timeline with the pauses of launches at its end, and what else the device waits for."""
        return self._waiting(timeline.lasting(timeline.duration + self.pauses))

    def _waiting(self, paused: Timeline, delay: float = 0.0) -> Timeline:
        """A timeline with the wait for slower devices.

        It lasts at least as long as the host needs, which issues the next kernels while devices wait.
        """
        late = paused.lasting(paused.duration + delay, "waiting for slower devices")
        return late.lasting(late.duration * self.straggling, "waiting for slower parts of the network").lasting(
            self.host
        )

    @cached_property
    def straggling(self) -> float:
        """The step of the slowest part that a network joins, over that of one in the middle (`Cluster.straggling`)."""
        return self.cluster.straggling(self.job_devices or self.devices)

    def paced_seconds(self, seconds: float) -> float:
        """The duration of a paced timeline that takes so long on the device alone."""
        return larger((seconds + larger(0.0, self.pauses)) * self.straggling, self.host)

    @cached_property
    def pauses(self) -> float:
        """Seconds that the device pauses before launches outside of CUDA graphs, and of the graphs of loops."""
        return pausing_seconds(self)

    @cached_property
    def asking(self) -> tuple[float, float]:
        """Seconds of loops that end on data, with the host's part in them, and of the device alone in them."""
        return asking_seconds(self)

    @cached_property
    def host(self) -> float:
        """Seconds that the host needs to issue a step, 0 where it is not counted."""
        return issuing_seconds(self)

    @cached_property
    def executes(self) -> Executed:
        """What runs: loops multiplied, of branches the costlier one."""
        return self._settled[2].executed(self.simulator.plan)

    @property
    def executed(self) -> tuple[tuple[Kernel, int], ...]:
        """Every kernel that runs, with how often."""
        return self.executes.kernels

    @cached_property
    def memory(self) -> MemoryUse:
        """The bytes that one device must hold; where a compiler found no room, the bytes that it asked for."""
        return held_memory(self.lowered, self.device)

    @property
    def capacity(self) -> int:
        """Bytes that a device can hold, or that a compiler had where it found no room."""
        overflow = self.lowered.overflow
        return overflow.bound if overflow is not None else whole_part(self.device.memory_bytes)

    @cached_property
    def verdict(self) -> Infeasible | None:
        """Why it does not fit; None where it does. Nothing is timed for it."""
        spread: Spread = "shared" if self.workload.devices > 1 else "whole"
        return memory_verdict(self.memory, self.capacity, self.lowered.overflow, spread=spread)

    def untimed(self) -> Prediction:
        """The prediction without its times: memory, counts, and whether the step fits."""
        return untimed_prediction(self)

    def predict(self) -> Prediction:
        """The prediction, or an infeasible one without a time."""
        started = time.perf_counter()
        answer = timed_prediction(self) if self.verdict is None else self.untimed()
        if self.workload.data_loops and self.whole and self.interval:
            answer = with_data_loops(answer, self)
        if self.whole and not self.brief:
            answer = with_trust(answer, self.cluster, self.options, light=self._at_light)
        return _with_seconds(answer, time.perf_counter() - started)

    def _at_light(self) -> float:
        """Seconds of all compute kernels, one after the other, at the speed of light and the highest clock."""
        boost = max(1.0, self.device.clock_hz / self.device.peak_clock_hz)
        light = light_seconds(self.executes.computing, self.device)
        return float(self.executes.counts @ light) / boost

    @property
    def fidelity(self) -> str:
        """The fidelity that most of the computing time comes from; `compiled` where that was asked for."""
        return main_fidelity(self)


_with_seconds = copier(Prediction, "seconds")
