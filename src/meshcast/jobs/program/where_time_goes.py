"""Which kernels and collectives a run's time goes to, and which arithmetic."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcast.base import Group
from meshcast.estimate import Rate, matrix_rate
from meshcast.lower import CostKey, Kernel, LoweredProgram
from meshcast.results import CollectiveShare, Communication, KernelShare, ScheduleUsed, group_shares, link_use
from meshcast.workload import Gemm

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFlops:
    """FLOPs of matrix products on one device, in one step.

    Attributes:
        model: The model's own.
        total: With what is recomputed or repeated.
        peak: FLOP/s of the types that most of them are in; 0 where nothing multiplies matrices.
        types: These types, the catalogue's keys, that with most FLOPs first.
    """

    model: float
    total: float
    peak: float
    types: tuple[str, ...]


def matrix_flops(run: Run) -> MatrixFlops:
    """The matrix products of a run."""
    by_peak: defaultdict[float, float] = defaultdict(float)
    by_type: defaultdict[tuple[float, str], float] = defaultdict(float)
    rates: dict[CostKey, Rate] = {}
    total = redundant = 0.0
    for kernel, count in run.executes.multiplying:
        rate = rates.get(kernel.cost_key)
        if rate is None:
            rate = rates[kernel.cost_key] = matrix_rate(kernel, run.device)
        flops = count * kernel.matrix_flops
        total += flops
        redundant += count * kernel.redundant_flops
        by_peak[rate.flops] += flops
        by_type[rate.flops, rate.type] += flops
    peak = max(by_peak, key=lambda rate: by_peak[rate], default=0.0)
    types = sorted((each for each in by_type if each[0] == peak), key=lambda each: -by_type[each])
    return MatrixFlops(model=total - redundant, total=total, peak=peak, types=tuple(name for _, name in types))


def top_kernels(run: Run, limit: int = 10) -> tuple[KernelShare, ...]:
    """The kernels that take longest, equal ones together."""
    groups: dict[tuple[str, CostKey], tuple[Kernel, int]] = {}
    for kernel, count in run.executed:
        if kernel.collective is None:
            key = (kernel.name, kernel.cost_key)
            groups[key] = (kernel, groups.get(key, (kernel, 0))[1] + count)
    times = [(count * run.kernels[kernel].time, count, kernel) for kernel, count in groups.values()]
    longest = heapq.nsmallest(limit, times, key=lambda timed: -timed[0])  # of equal ones the first
    return tuple(
        [
            KernelShare(
                name=described_kernel(kernel, run.lowered),
                count=count,
                seconds=seconds,
                limited_by=run.kernels[kernel].limited_by,
                location=kernel.location,
            )
            for seconds, count, kernel in longest
        ]
    )


def communication_summary(run: Run) -> Communication:
    """Communication by group, use of links, the schedule behind it and the critical path."""
    timeline = run.timeline
    ordered = run.lowered.lowering != "modelled" and run.options.run.scheduler == "latency-hiding"
    modelled = run.contention is not None and run.simulator.contended
    return Communication(
        groups=group_shares(timeline),
        links=link_use(
            ((run.collective(k), n) for k, n in run.executed if k.collective), run.setting.cluster, timeline.duration
        ),
        schedule=ScheduleUsed(
            scheduler="compiler" if ordered else run.options.run.scheduler,
            channels=run.simulator.channels,
            contention="on" if modelled else "off" if run.options.run.contention == "off" else "none",
            overlap=str(run.options.lowering.rewrites),
        ),
        slowdown=timeline.slowdown,
        critical=timeline.critical,
    )


def collective_shares(run: Run) -> tuple[CollectiveShare, ...]:
    """Collectives by kind and group, the longest first."""
    groups: dict[tuple[str, Group], list[tuple[Kernel, int]]] = defaultdict(list)
    for kernel, count in run.executed:
        if kernel.collective is not None:
            c = kernel.collective
            groups[c.kind, c.group].append((kernel, count))
    shares = []
    for (kind, group), kernels in groups.items():
        times = [(run.network.seconds(kernel), count, kernel) for kernel, count in kernels]
        longest = run.collective(max(times, key=lambda item: item[0] * item[1])[2])
        shares.append(
            CollectiveShare(
                kind=kind,
                group=str(group),
                group_size=group.size,
                count=sum(count for _, count in kernels),
                bytes_sent=sum(count * k.collective.sent_bytes for k, count in kernels if k.collective),
                seconds=sum(seconds * count for seconds, count, _ in times),
                algorithm=longest.algorithm,
                level=longest.level,
            )
        )
    return tuple(sorted(shares, key=lambda share: -share.seconds))


def described_kernel(kernel: Kernel, lowered: LoweredProgram) -> str:
    """A kernel's kind with the shape that matters."""
    if isinstance(kernel.geometry, Gemm):
        return f"{kernel.kind.value} {kernel.geometry}"
    shape = str(lowered.tensors[kernel.writes[0]]) if kernel.writes else ""
    root = kernel.ops[-1].rpartition(".")[2] if kernel.ops else ""
    more = f" (+{len(kernel.ops) - 1} ops)" if len(kernel.ops) > 1 else ""
    return f"{kernel.kind.value} {root}{more} {shape}".strip()
