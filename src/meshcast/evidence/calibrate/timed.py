"""Kernels of measured programs with their times: `pairing`, and what it needs to be told of whole models.

Inside a CUDA graph the profiler calls every launch `command_buffer_N`, and the kernel has the name of the instruction
with underscores for what no symbol may hold. Equal fusions share one kernel, whose name the HLO text notes beside each
of them (`deduplicated_name`), though some keep one of their own: the launches of all of them are summed, and every one is
taken to last as long. Outside of graphs every launch has its instruction's name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshcast.evidence.calibrate.pairing import TimedKernel, lets_start_early, paired_kernels
from meshcast.lower import Kernel, KernelKind, lower_hlo
from meshcast.workload import Attention

Launch = Mapping[str, Any]  # hlo_op, kernel, count, us
GRAPH = "command_buffer"
CONVOLUTION = "cudnn-conv"  # how XLA's instructions that call cuDNN's convolutions begin
COUNTS_AGREE = (0.9, 1.1)  # launches over those of the HLO: beyond it, something else was launched under the name
_SHARED = re.compile(r'^\s+(?:ROOT )?%?(\S+) = .*?deduplicated_name="([^"]+)"', re.MULTILINE)


def timed_kernels(
    launches: Sequence[Launch], modelled: Sequence[tuple[Kernel, int]], hlo: str | None, busy_us: float
) -> list[TimedKernel]:
    """The kernels of one small program with their times; arguments as for `paired_kernels`.

    A single convolution, or call of fused attention, takes as long as the launches of its instruction do, whatever runs
    around it; a single normalisation as long as the one fusion that is named as such, if it lasts longer than all others
    of the name together.
    """
    found = paired_kernels(launches, modelled, hlo, busy_us)
    if found:
        return found
    for names, is_ours in _CALLS:
        ours = [(kernel, count) for kernel, count in modelled if is_ours(kernel)]
        seconds = sum(launch["us"] for launch in launches if re.match(names, launch["hlo_op"])) * 1e-6
        if seconds and len(ours) == 1 and ours[0][1] == 1:
            found.append((ours[0][0], seconds))
    rows = [(kernel, count) for kernel, count in modelled if kernel.kind is KernelKind.REDUCTION]
    fused = sorted(
        (launch["us"] * 1e-6 for launch in launches if _FUSED_ROWS.fullmatch(launch["kernel"])), reverse=True
    )
    if fused and len(rows) == 1 and rows[0][1] == 1 and fused[0] > sum(fused[1:]):
        found.append((rows[0][0], fused[0]))
    return found


def _attends(kernel: Kernel, *, backward: bool) -> bool:
    return isinstance(kernel.geometry, Attention) and kernel.geometry.backward is backward


# Instructions of library calls, and which of our kernels they are.
_CALLS: tuple[tuple[str, Callable[[Kernel], bool]], ...] = (
    (CONVOLUTION, lambda kernel: kernel.kind is KernelKind.CONVOLUTION),
    (r"dot_product_attention_fwd", lambda kernel: _attends(kernel, backward=False)),
    (r"dot_product_attention_bwd", lambda kernel: _attends(kernel, backward=True)),
)
_FUSED_ROWS = re.compile(r"fusion(_\d+)?")  # XLA's Triton fusions of rows have no other name


def timed_model(
    launches: Sequence[Launch], modelled: Sequence[tuple[Kernel, int]], hlo: str, busy_us: float
) -> list[TimedKernel]:
    """The kernels of a whole model with their times."""
    return paired_kernels(instruction_launches(launches, hlo), modelled, hlo, busy_us)


def instruction_launches(launches: Sequence[Launch], hlo: str) -> list[Launch]:
    """The launches under the instruction each belongs to, shared ones by how often each instruction runs."""
    shared: dict[str, str] = dict(_SHARED.findall(hlo))

    def kernel_of(instruction: str) -> str:
        return _symbol(shared.get(instruction, instruction))

    runs: defaultdict[str, int] = defaultdict(int)
    for kernel, count in lower_hlo(hlo).schedule.walk():
        if kernel.collective is None:
            runs[kernel.name] += count
    of_symbol = {_symbol(name): kernel_of(name) for name in runs}
    graphed = {of_symbol.get(launch["kernel"], "") for launch in launches if launch["hlo_op"].startswith(GRAPH)}

    def group(instruction: str) -> str:
        return found if (found := kernel_of(instruction)) in graphed else _symbol(instruction)

    expected: defaultdict[str, int] = defaultdict(int)
    for name, count in runs.items():
        expected[group(name)] += count
    measured: defaultdict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        inside = launch["hlo_op"].startswith(GRAPH)
        measured[of_symbol.get(launch["kernel"], "") if inside else group(launch["hlo_op"])].append(launch)
    found: list[Launch] = []
    for name, count in runs.items():
        here = measured.get(group(name), [])
        # A library launches what it likes for a call; a kernel of XLA's own runs as often as its instructions.
        own = any(launch["kernel"] in of_symbol for launch in here)
        ratio = sum(launch["count"] for launch in here) / expected[group(name)]
        if here and (not own or COUNTS_AGREE[0] <= ratio <= COUNTS_AGREE[1]):
            us = sum(launch["us"] for launch in here) * count / expected[group(name)]
            early = any(lets_start_early(launch) for launch in here)
            found.append({"hlo_op": name, "kernel": group(name), "count": count, "us": us, "early": early})
    return found


def _symbol(instruction: str) -> str:
    return re.sub(r"[.-]", "_", instruction)
