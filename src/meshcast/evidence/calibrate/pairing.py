"""Measured times put beside kernels: which launch of a profile is which kernel.

A probe of one kernel took as long as that kernel. Of a probe of several, XLA's optimized HLO names every launch: its fusions
are kernels with their own times. Products and attention are given the shape that our own lowering has for them, as that is
what a prediction will ask for: the calls of both are matched by the work they do. Convolutions keep the call's own shape,
which says whether it is a layer or one of its gradients.

What runs behind a kernel that lets its successor start early is left out, calls of libraries aside, of which such a wait is
little: cuDNN's and cuBLAS's `sm90_xmma` kernels trigger the next launch before they end (programmatic dependent launch, CUDA
C++ Programming Guide), so that it is seen to last from there on, mostly waiting. On an H200 tiny kernels behind them last 3
to 8 us, 1.2 us elsewhere, and the sum of a ResNet's kernels exceeds the time in which any of them runs by just that.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshcast.lower import Kernel, KernelKind, lower_hlo
from meshcast.workload import Gemm

TimedKernel = tuple[Kernel, float]  # a kernel and its seconds
_CALLS = (KernelKind.CONVOLUTION, KernelKind.ATTENTION, KernelKind.GEMM)
EARLY = "sm90_xmma"  # in the names of kernels that let the next one start before they end
_FILLS = re.compile(r"(loop|wrapped)_broadcast|Memset")  # launches that write a constant
SAME_WORK = 0.1  # relative difference up to which two calls are taken for one: work at the padding counts differently
LIKELY = 0.5  # the same where there is no other


def paired_kernels(
    launches: Sequence[Mapping[str, Any]], modelled: Sequence[tuple[Kernel, int]], hlo: str | None, busy_us: float
) -> list[TimedKernel]:
    """The kernels of one probe with their times.

    Args:
        launches: What the profiler saw in a run: `hlo_op`, `kernel`, `count`, `us`.
        modelled: Our own kernels of it, with how often each runs.
        hlo: What XLA compiled it to, if that was kept.
        busy_us: Time in which any kernel ran.
    """
    working = [(kernel, count) for kernel, count in modelled if kernel.read_bytes]  # without what fills its result
    if sum(count for _, count in working) == 1:
        filling = sum(launch["us"] for launch in launches if _FILLS.match(launch["kernel"]))
        left = busy_us - filling if len(working) < len(modelled) and filling < busy_us else busy_us
        return [(working[0][0], left * 1e-6)]
    if hlo is None:
        return []
    measured: defaultdict[str, float] = defaultdict(float)
    for launch in launches:
        measured[launch["hlo_op"]] += launch["us"] * 1e-6
    compiled = [(k, n) for k, n in lower_hlo(hlo).schedule.walk() if k.collective is None and measured.get(k.name)]
    runs: defaultdict[str, int] = defaultdict(int)
    for kernel, count in compiled:
        runs[kernel.name] += count
    times = [(kernel, measured[kernel.name] / runs[kernel.name]) for kernel, _ in compiled]
    early = {launch["hlo_op"] for launch in launches if lets_start_early(launch)}
    behind = {place + 1 for place, (kernel, _) in enumerate(compiled) if kernel.name in early}
    found: list[TimedKernel] = []
    summed: set[int] = set()  # places of kernels that add up a split product
    for place, (kernel, seconds) in enumerate(times):
        if kernel.kind not in _CALLS:
            continue
        if kernel.kind is KernelKind.CONVOLUTION:  # gradients of a layer do the same work: the call says which it is
            found.append((kernel, seconds))
            continue
        near = _nearest(kernel, [other for other, _ in modelled if other.kind is kernel.kind])
        if near is None:
            found.append((kernel, seconds))
            continue
        sums = [i for i in range(place + 1, len(times)) if _adds_up(kernel, near, times[i][0])]
        summed.update(sums)
        found.append((near, seconds + sum(times[i][1] for i in sums)))
    own = [i for i, (kernel, _) in enumerate(times) if kernel.kind not in _CALLS]
    found += [times[i] for i in own if i not in summed and i not in behind]
    return [(replace(kernel, name=""), seconds) for kernel, seconds in found]


def lets_start_early(launch: Mapping[str, Any]) -> bool:
    """Whether the kernel behind a launch, or behind those that were put together under its instruction, begins before it ends."""
    return bool(launch.get("early")) or EARLY in str(launch["kernel"])


def _nearest(kernel: Kernel, modelled: Sequence[Kernel]) -> Kernel | None:
    """Our own kernel that does the same work and moves the same bytes; the only one there is, if it is near enough."""
    near = min(modelled, key=lambda other: _difference(kernel, other), default=None)
    limit = LIKELY if len(modelled) == 1 else SAME_WORK
    return near if near is not None and _difference(kernel, near) <= limit else None


def _adds_up(product: Kernel, ours: Kernel, other: Kernel) -> bool:
    """Whether a kernel sums the parts of a product that XLA has split along K."""
    split, whole = product.geometry, ours.geometry
    return (
        isinstance(split, Gemm)
        and isinstance(whole, Gemm)
        and split.k < whole.k
        and product.writes[:1] == other.reads[:1]
        and other.kind is KernelKind.REDUCTION
    )


def _difference(one: Kernel, other: Kernel) -> float:
    def apart(a: float, b: float) -> float:
        return abs(a - b) / max(a, b, 1.0)

    bytes_apart = apart(one.read_bytes + one.written_bytes, other.read_bytes + other.written_bytes)
    return apart(one.matrix_flops, other.matrix_flops) + bytes_apart / 4
