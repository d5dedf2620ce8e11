"""The whole way of the data in one call: `predict(target, on=...)`; each stage can be called alone."""

from __future__ import annotations

import functools
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

from meshcast.capture.program import Program
from meshcast.capture.target import CaptureOptions, load
from meshcast.errors import UsageError, nearest
from meshcast.estimate import EstimatedKernels, Estimator, estimate_kernels, load_estimator
from meshcast.estimate.energy import idle_watts
from meshcast.estimate.estimator import Clocks
from meshcast.estimate.rates import matrix_rate
from meshcast.hardware import Cluster, Device, resolve
from meshcast.levers import find_levers
from meshcast.lower import Kernel, LoweredProgram, lower
from meshcast.lower.kernel import CostKey
from meshcast.network import CollectiveTime, collective_time
from meshcast.partition import partition
from meshcast.results import CollectiveShare, Infeasible, KernelShare, Prediction, Provenance
from meshcast.simulate import MemoryUse, Timeline, peak_memory
from meshcast.simulate.engine import Simulator
from meshcast.units import format_bytes
from meshcast.version import VERSION
from meshcast.workload import ReadOptions, Workload, read_workload
from meshcast.workload.custom_calls import registered_rules

NETWORKS = ("alpha-beta",)
# `auto`: the best first. Later fidelities enter here.
AUTO_ORDER = ("analytical", "roofline")
# The closed form has no start-up cost and takes links at their full rate: of 101 published collectives of 1 MiB and more
# on DGX-class machines, 93 % took less than twice its time and 30 us.
NETWORK_FACTOR, NETWORK_START_S = 2.0, 30e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything a prediction depends on besides the program."""

    on: str = "h100-sxm"
    devices: int | None = None
    mesh: Mapping[str, int] | None = None
    fidelity: str = "auto"
    network: str = "alpha-beta"
    partitioner: str = "shardy"
    clocks: Clocks = "sustained"
    dims: Mapping[str, int] = field(default_factory=dict)
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    approximate: bool = False
    levers: bool = True


def predict(target: str | Path | Program, options: Options | None = None, **overrides: object) -> Prediction:
    """How a target will run: `predict("step.mlir", on="h200")`.

    Args:
        target: A file, `module:function`, a model's name, or a captured `Program`.
        options: All settings at once.
        **overrides: Single settings, by the field names of `Options`.
    """
    started = time.perf_counter()
    known = {option.name for option in fields(Options)}
    for name in overrides:
        if name not in known:
            raise UsageError(f"predict has no setting {name!r}", where="predict", fix=nearest(name, known))
    chosen = replace(options or Options(), **overrides)  # type: ignore[arg-type]
    run = prepare(target, chosen)
    prediction = run.predict()
    return replace(prediction, seconds=time.perf_counter() - started)


def prepare(target: str | Path | Program, options: Options) -> Run:
    """Everything up to the kernels: captured, partitioned, read and lowered for the chosen hardware."""
    cluster = resolve(options.on)
    estimators = _estimators(options.fidelity, options.clocks)
    if options.network not in NETWORKS:
        raise UsageError(
            f"no network model {options.network!r}", where="--network", fix="one of " + ", ".join(NETWORKS)
        )
    lowered = lowered_program(target, options, cluster.device)
    devices, notes = _device_count(lowered.workload, options.devices)
    return Run(
        lowered=lowered,
        cluster=cluster.for_devices(devices),
        devices=devices,
        estimators=estimators,
        options=options,
        notes=notes,
    )


# Lowered programs by content, the latest last: the same program on other hardware, or at another fidelity, starts from there.
_LOWERED: OrderedDict[tuple[object, ...], LoweredProgram] = OrderedDict()
KEPT_PROGRAMS = 32


def lowered_program(target: str | Path | Program, options: Options, device: Device) -> LoweredProgram:
    """The kernels of a target on a kind of device; kept by the program's content and everything that shaped it."""
    program, mesh = captured(target, options, device)
    backend = {"tpu": "xla-tpu"}.get(device.kind, "xla-gpu")
    key = (
        program.sha256, tuple((mesh or {}).items()), options.partitioner, tuple(options.dims.items()),
        tuple(options.trip_counts.items()), options.approximate, backend, registered_rules(),
    )  # fmt: skip
    found = _LOWERED.pop(key, None)
    if found is None:
        local = partition(program, mesh=mesh, route=options.partitioner)
        read = ReadOptions(trip_counts=options.trip_counts, approximate=options.approximate)
        found = lower(read_workload(local, read), backend=backend)
    _LOWERED[key] = found
    while len(_LOWERED) > KEPT_PROGRAMS:
        _LOWERED.popitem(last=False)
    if (found.workload.name, found.workload.source) == (program.name, program.source):
        return found
    return replace(found, workload=replace(found.workload, name=program.name, source=program.source))


def local_program(target: str | Path | Program, options: Options) -> Program:
    """The program of one device: captured for the hardware's platform, over the mesh asked for, and partitioned."""
    program, mesh = captured(target, options, resolve(options.on).device)
    return partition(program, mesh=mesh, route=options.partitioner)


def captured(
    target: str | Path | Program, options: Options, device: Device
) -> tuple[Program, Mapping[str, int] | None]:
    """The program of a target, lowered for the device's platform, and the mesh sizes that are still to be overridden."""
    platform = {"tpu": "tpu", "cpu": "cpu"}.get(device.kind, "rocm" if device.vendor.lower() == "amd" else "cuda")
    program = load(
        target,
        CaptureOptions(platform=platform, dims=options.dims, mesh=options.mesh, settings=options.settings),
    )
    return program, options.mesh if options.mesh and dict(options.mesh) != program.mesh.sizes else None


def _estimators(fidelity: str, clocks: Clocks) -> tuple[Estimator, ...]:
    if clocks not in ("sustained", "burst"):
        raise UsageError(f"no clocks {clocks!r}", where="--clocks", fix="sustained or burst")
    names = AUTO_ORDER if fidelity == "auto" else (fidelity,)
    found = [load_estimator(name) for name in names]
    return tuple(e.at_clocks(clocks) if hasattr(e, "at_clocks") else e for e in found)


def _device_count(workload: Workload, asked: int | None) -> tuple[int, tuple[str, ...]]:
    if asked is None or asked == workload.devices:
        return workload.devices, ()
    if asked < 1:
        raise UsageError(f"cannot run on {asked} devices", where="--devices", fix="ask for at least 1")
    if workload.devices == 1:
        return asked, (f"the program is not sharded: all {asked} devices run it alike, without communication",)
    raise UsageError(
        f"the program is sharded over {workload.devices} devices ({workload.mesh}), not {asked}",
        where="--devices",
        fix="change the mesh with --mesh, e.g. --mesh "
        + ",".join(f"{name}={size}" for name, size in workload.mesh.axes),
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A lowered program on chosen hardware: estimate, simulate and predict from here."""

    lowered: LoweredProgram
    cluster: Cluster
    devices: int
    estimators: tuple[Estimator, ...]
    options: Options
    notes: tuple[str, ...] = ()

    @property
    def device(self) -> Device:
        """The device every rank runs on."""
        return self.cluster.device

    @property
    def workload(self) -> Workload:
        """The op graph behind the kernels."""
        return self.lowered.workload

    @cached_property
    def kernels(self) -> EstimatedKernels:
        """Times of the compute kernels."""
        return estimate_kernels(self.lowered, self.device, self.estimators, approximate=self.options.approximate)

    @cached_property
    def _collective_times(self) -> dict[CostKey, CollectiveTime]:
        return {}

    def collective(self, kernel: Kernel) -> CollectiveTime:
        """Time of a collective kernel on its own."""
        assert kernel.collective is not None
        key = kernel.cost_key
        if key not in self._collective_times:
            self._collective_times[key] = collective_time(kernel.collective, self.cluster)
        return self._collective_times[key]

    def _communication(self, kernel: Kernel, factor: float = 1.0, start_s: float = 0.0) -> float:
        return self.collective(kernel).seconds * factor + start_s

    @cached_property
    def simulator(self) -> Simulator:
        """The program planned once, to be run with any times."""
        return Simulator(self.lowered)

    @cached_property
    def timeline(self) -> Timeline:
        """When everything runs on one rank."""
        return self.simulator.run(self.kernels, self._communication)

    @cached_property
    def executed(self) -> tuple[tuple[Kernel, int], ...]:
        """Every kernel that runs, with how often: loops multiplied, of branches the costlier one."""
        return tuple((span.kernel, count) for span, count in self.timeline.walk())

    @cached_property
    def memory(self) -> MemoryUse:
        """What one device must hold."""
        return peak_memory(self.lowered)

    def predict(self) -> Prediction:
        """The prediction, or an infeasible one without a time."""
        workload, memory = self.workload, self.memory
        capacity = int(self.device.memory_bytes)
        infeasible = _does_not_fit(memory, capacity) if memory.peak > capacity else None
        counted = self.executed
        prediction = Prediction(
            name=workload.name,
            sha256=workload.sha256,
            devices=self.devices,
            mesh=workload.mesh.sizes,
            device=self.device.name,
            cluster=self.cluster.name if self.devices > 1 else None,
            fidelity=self.fidelity,
            network=self.options.network,
            infeasible=infeasible,
            step_time_s=None,
            interval_s=None,
            breakdown=None,
            flops=workload.totals.flops,
            hbm_bytes=float(sum(n * (k.read_bytes + k.written_bytes) for k, n in counted if k.collective is None)),
            communication_bytes=sum(n * k.collective.sent_bytes for k, n in counted if k.collective is not None),
            memory=memory,
            capacity_bytes=capacity,
            energy_j=None,
            mfu=None,
            hfu=None,
            kernels=sum(n for _, n in counted),
            communication_s=None,
            provenance=Provenance(analytical=1.0),
            warnings=(*workload.warnings, *self.notes),
            version=VERSION,
        )
        return prediction if infeasible else self._timed(prediction)

    @property
    def fidelity(self) -> str:
        """The fidelity that most of the computing time comes from."""
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
        energy = timeline.energy + idle_watts(self.device) * step
        notes = list(self.kernels.warnings)
        if step and energy / step > self.device.tdp_watts:
            notes.append(
                f"average power of {energy / step:.0f} W is above the {self.device.tdp_watts:.0f} W cap: "
                "a sustained run clocks down and takes longer"
            )
        model_flops, all_flops, peak = self._model_flops()
        return replace(
            prediction,
            step_time_s=step,
            interval_s=self._interval(),
            breakdown=timeline.breakdown,
            energy_j=energy,
            mfu=model_flops / (step * peak) if step and peak else 0.0,
            hfu=all_flops / (step * peak) if step and peak else 0.0,
            communication_s=timeline.communication_busy,
            provenance=self._provenance(),
            levers=tuple(find_levers(self)) if self.options.levers else (),
            top_kernels=self._top_kernels(),
            collectives=self._collective_shares(),
            timeline=timeline,
            warnings=(*prediction.warnings, *notes),
        )

    def _interval(self) -> tuple[float, float]:
        """The step simulated with every kernel at its lower, and at its upper end."""
        ends = []
        for end, factor, start_s in (("low", 1.0, 0.0), ("high", NETWORK_FACTOR, NETWORK_START_S)):
            shifted = {key: replace(e, time=getattr(e, end)) for key, e in self.kernels.by_key.items()}
            network = functools.partial(self._communication, factor=factor, start_s=start_s)
            ends.append(self.simulator.duration(replace(self.kernels, by_key=shifted), network))
        return min(ends[0], self.timeline.duration), max(ends[1], self.timeline.duration)

    def _model_flops(self) -> tuple[float, float, float]:
        """(matrix FLOPs without recomputation, all matrix FLOPs, the peak of the type that most of them are in)."""
        by_peak: defaultdict[float, float] = defaultdict(float)
        total = recomputed = 0.0
        for kernel, count in self.executed:
            if kernel.matrix_flops:
                flops = count * kernel.matrix_flops
                total += flops
                recomputed += flops if kernel.recomputed else 0.0
                by_peak[matrix_rate(kernel, self.device).flops] += flops
        peak = max(by_peak, key=lambda rate: by_peak[rate]) if by_peak else 0.0
        return total - recomputed, total, peak

    def _provenance(self) -> Provenance:
        """Shares of busy time by origin; communication comes from a closed form."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for span, count in self.timeline.walk():
            origin = "analytical" if span.kernel.collective is not None else self.kernels[span.kernel].origin.value
            seconds[origin] += count * (span.end - span.start)
        total = sum(seconds.values())
        return Provenance(**{k: v / total for k, v in seconds.items()}) if total else Provenance(analytical=1.0)

    def _top_kernels(self, limit: int = 10) -> tuple[KernelShare, ...]:
        groups: dict[tuple[str, CostKey], tuple[Kernel, int]] = {}
        for kernel, count in self.executed:
            if kernel.collective is None:
                key = (kernel.name, kernel.cost_key)
                groups[key] = (kernel, groups.get(key, (kernel, 0))[1] + count)
        shares = [
            KernelShare(
                name=_describe(kernel, self.lowered),
                count=count,
                seconds=count * self.kernels[kernel].time,
                limited_by=self.kernels[kernel].limited_by,
                location=kernel.location,
            )
            for kernel, count in groups.values()
        ]
        return tuple(sorted(shares, key=lambda share: -share.seconds)[:limit])

    def _collective_shares(self) -> tuple[CollectiveShare, ...]:
        groups: dict[tuple[str, str, int], list[tuple[Kernel, int]]] = defaultdict(list)
        for kernel, count in self.executed:
            if kernel.collective is not None:
                c = kernel.collective
                groups[c.kind, str(c.group), c.group.size].append((kernel, count))
        shares = []
        for (kind, group, size), kernels in groups.items():
            times = [(self.collective(kernel), count) for kernel, count in kernels]
            longest = max(times, key=lambda item: item[0].seconds * item[1])[0]
            shares.append(
                CollectiveShare(
                    kind=kind,
                    group=group,
                    group_size=size,
                    count=sum(count for _, count in kernels),
                    bytes_sent=sum(count * k.collective.sent_bytes for k, count in kernels if k.collective),
                    seconds=sum(t.seconds * count for t, count in times),
                    algorithm=longest.algorithm,
                    level=longest.level,
                )
            )
        return tuple(sorted(shares, key=lambda share: -share.seconds))


def _describe(kernel: Kernel, lowered: LoweredProgram) -> str:
    """A kernel's kind with the shape that matters."""
    from meshcast.workload.graph import Gemm

    if isinstance(kernel.geometry, Gemm):
        g = kernel.geometry
        batch = f"{g.batch}x " if g.batch > 1 else ""
        return f"{kernel.kind.value} {batch}{g.m}x{g.n}x{g.k} {g.lhs_dtype}"
    shape = str(lowered.tensors[kernel.writes[0]]) if kernel.writes else ""
    root = kernel.ops[-1].rpartition(".")[2] if kernel.ops else ""
    more = f" (+{len(kernel.ops) - 1} ops)" if len(kernel.ops) > 1 else ""
    return f"{kernel.kind.value} {root}{more} {shape}".strip()


def _does_not_fit(memory: MemoryUse, capacity: int) -> Infeasible:
    held = memory.arguments + memory.outputs - memory.aliased
    levers = []
    state = sum(size for role, size in memory.by_role.items() if role in ("parameter", "optimizer_state"))
    if state > memory.peak // 4:
        levers.append(f"shard parameters and optimizer state further: {format_bytes(state)} of them lie on each device")
    if memory.temporaries > memory.peak // 4:
        levers.append(
            "recompute activations (jax.checkpoint) or use smaller microbatches: "
            f"temporaries take {format_bytes(memory.temporaries)}"
        )
    if memory.outputs > memory.aliased + memory.peak // 10:
        levers.append("donate the arguments that outputs replace (donate_argnums)")
    if memory.by_role.get("cache", 0) > memory.peak // 4:
        levers.append("shorten the context, quantise the cache, or shard it over more devices")
    factor = memory.peak / capacity
    levers.append(f"use {factor:.1f} times as many devices, or devices with at least {format_bytes(memory.peak)}")
    if held > capacity:
        levers.append("arguments and outputs alone exceed the memory: no change of the schedule can help")
    return Infeasible(resource="memory_bytes", demand=memory.peak, bound=capacity, levers=tuple(levers))
