"""What would help most: the step predicted again with one thing changed at a time, ranked by the time it saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshcast.estimate import EstimatedKernels, KernelEstimate
from meshcast.hardware import Cluster
from meshcast.lower import CostKey, Kernel, LoweredProgram
from meshcast.network.models import network_model
from meshcast.results.prediction import Lever
from meshcast.simulate import KernelTimes
from meshcast.simulate.network import OnNetwork
from meshcast.workload.graph import Gemm

if TYPE_CHECKING:
    from meshcast.run import Run

# Below this share of the step a change is not worth a line.
WORTH_SAYING = 0.01


def find_levers(run: Run, limit: int = 3) -> list[Lever]:
    """The changes that save most, best first."""
    step = run.timeline.duration
    levers = [Lever(change=text, step_time_s=seconds, saved_s=step - seconds) for text, seconds in _alternatives(run)]
    worth = [lever for lever in levers if lever.saved_s > WORTH_SAYING * step]
    return sorted(worth, key=lambda lever: -lever.saved_s)[:limit]


def _alternatives(run: Run) -> Iterator[tuple[str, float]]:
    lowered, timeline = run.lowered, run.timeline

    def again(kernels: KernelTimes) -> float:
        return run.duration(kernels, run.network)

    if run.delay:
        yield "all devices at the same speed", max(timeline.duration - run.delay, run.host)

    if timeline.breakdown.exposed_communication > 0:
        # Not less than the busiest channel: groups have one each, unless they are told to share.
        shared = run.options.channels > 0
        busiest = timeline.communication_busy if shared else max(group.busy for group in timeline.groups)
        hidden = max(timeline.duration - timeline.breakdown.exposed_communication, busiest)
        yield "hide all communication behind computation", hidden
        for position, level in enumerate(run.setting.cluster.levels):
            faster = _faster_level(run.setting.cluster, position)
            model = network_model(run.options.network, replace(run.setting, cluster=faster))
            yield f"twice the {level.name} bandwidth", run.duration(run.kernels, OnNetwork(model=model))
    if timeline.breakdown.memory > 0:
        yield "twice the memory bandwidth", again(_rescaled(run.kernels, memory=0.5))
    if timeline.breakdown.compute > 0:
        yield "twice the arithmetic rate", again(_rescaled(run.kernels, compute=0.5))
    if any(kernel.recomputed for kernel, _ in lowered.schedule.walk()):
        yield "keep activations instead of recomputing them", again(_WithoutRecomputation(kernels=run.kernels))
    scores = _score_traffic(lowered)
    if scores:
        yield "fused (flash) attention: scores stay on chip", again(_less_traffic(run.kernels, scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithoutRecomputation:
    """The same answers, but what only repeats the forward pass is not launched; gaps between the others stay."""

    kernels: EstimatedKernels

    @property
    def gap(self) -> float:
        return self.kernels.gap

    def __getitem__(self, kernel: Kernel) -> KernelEstimate:
        estimate = self.kernels[kernel]
        return replace(estimate, time=0.0) if kernel.recomputed else estimate


def _faster_level(cluster: Cluster, position: int) -> Cluster:
    levels = list(cluster.levels)
    levels[position] = replace(levels[position], link_bandwidth=2 * levels[position].link_bandwidth)
    return replace(cluster, levels=tuple(levels))


def _rescaled(kernels: EstimatedKernels, *, compute: float = 1.0, memory: float = 1.0) -> EstimatedKernels:
    """Every kernel with its arithmetic or its traffic at another speed; what is neither stays as long as it was."""
    return replace(
        kernels,
        by_key={k: _with(e, e.compute_time * compute, e.memory_time * memory) for k, e in kernels.by_key.items()},
    )


def _with(estimate: KernelEstimate, compute: float, memory: float) -> KernelEstimate:
    carrying = estimate.core_time if estimate.core_time > estimate.compute_time else 0.0
    saved = max(estimate.compute_time, estimate.memory_time, carrying) - max(compute, memory, carrying)
    return replace(estimate, time=max(0.0, estimate.time - saved), compute_time=compute, memory_time=memory)


def _score_traffic(lowered: LoweredProgram) -> dict[CostKey, float]:
    """Share of each kernel's bytes that are attention scores: results of batched products, larger than the operands."""
    sizes = {
        kernel.geometry.batch * kernel.geometry.m * kernel.geometry.n
        for kernel, _ in lowered.schedule.walk()
        if isinstance(kernel.geometry, Gemm)
        and kernel.geometry.batch > 1
        and min(kernel.geometry.m, kernel.geometry.n) >= 2 * kernel.geometry.k
    }
    shares: dict[CostKey, float] = {}
    for kernel, _ in lowered.schedule.walk():
        moved = kernel.read_bytes + kernel.written_bytes
        touched = sum(
            lowered.tensors[v].bytes for v in (*kernel.reads, *kernel.writes) if lowered.tensors[v].elements in sizes
        )
        if touched and moved and kernel.collective is None:
            shares[kernel.cost_key] = min(1.0, touched / moved)
    return shares


def _less_traffic(kernels: EstimatedKernels, shares: dict[CostKey, float]) -> EstimatedKernels:
    def lighter(estimate: KernelEstimate, share: float) -> KernelEstimate:
        return _with(estimate, estimate.compute_time, estimate.memory_time * (1 - share))

    return replace(kernels, by_key={k: lighter(e, shares[k]) if k in shares else e for k, e in kernels.by_key.items()})
