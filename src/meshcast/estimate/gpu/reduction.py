"""Reductions: rows by a block each, columns by steps of 32 rows; fused normalisations.

Rows: memory-bound, `t = launch + bytes / bandwidth`.
Columns: a block of 32 x 32 threads walks down 32 to 128 columns, so many cycles for each load of a step, so that narrow arrays
are bound by `rows / 32 * loads` however few bytes they have (`column_sums`). A last step of fewer than 32 rows costs every
wave of blocks about a microsecond (seen on batch norms, whose rows are seldom a multiple of 32; why is a guess: checked
loads that nothing overlaps). Long ones come as two kernels from the lowering (`lower.graph.reduction_stages`).
Normalisations (softmax, layer norm): one Triton program per row, bound by its instructions:
`(row + start) * rows * ops * instructions / issue rate`; rows shorter than 512 share a program. All wait for the last
load, the exchange between warps and the write: a fixed latency. A reduction beside results that do not need it (the largest
value of what is about to be cast to fp8) is a pass over memory like others.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

from meshcast.base import larger, largest, smaller
from meshcast.estimate.explanation import Term
from meshcast.estimate.gpu.column_sums import RESIDENT, TILE, UNROLLED, ColumnWalk, column_walk
from meshcast.estimate.gpu.elementwise import SCALARS, blocks, instructions, output_elements
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.picks import missed_bytes
from meshcast.estimate.gpu.row_programs import as_tiled, row_program
from meshcast.lower import SCANNED, Kernel, scan_levels, short_name
from meshcast.workload import Reduction, element_bytes

NARROW = 128  # elements of rows that cost more than their arithmetic: fewer than four a lane
F32_BYTES = 4
KEPT_BYTES = 2  # of the numbers that `column_kept_cycles` is for
PROGRAM = 512  # elements of a row that one Triton program has to itself


Form = Literal["streaming", "columns", "normalisation", "scan", "picked"]


def reduction_form(kernel: Kernel) -> Form:
    """How a fusion with reductions runs: a pass over rows, steps down columns, a row a program, a scan, or a gather's sums.

    A gather beside what is reduced is no sum of picked rows: what is kept of it is written as it is loaded, and along rows of
    what was picked an index serves a whole row.
    """
    shape = kernel.geometry
    if not isinstance(shape, Reduction) or not shape.dims:
        return "streaming"
    elements = float(math.prod(shape.shape))
    reduced = float(math.prod(shape.shape[d] for d in shape.dims))
    if "gather" in kernel.flags and "aside" not in kernel.flags and not shape.reduces_minor:
        return "picked"
    if _is_scan(kernel):
        return "scan"
    normalises = _normalises(kernel, elements) and "aside" not in kernel.flags
    if shape.reduces_minor and normalises and elements / reduced > 1:
        return "normalisation"
    return "streaming" if shape.reduces_minor else "columns"


def reduction(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A fusion with reductions in it."""
    shape, form = kernel.geometry, reduction_form(kernel)
    if form == "streaming" or not isinstance(shape, Reduction):
        return _streaming(kernel, machine)
    elements = float(math.prod(shape.shape))
    reduced = float(math.prod(shape.shape[d] for d in shape.dims))
    if form == "picked":
        return _pooled_gather(kernel, elements, machine)
    if form == "scan":
        return _scan(kernel, shape, elements, machine)
    if form == "normalisation" and kernel.code is None:
        return row_program(as_tiled(kernel, shape), machine)
    if form == "normalisation":
        return _normalisation(kernel, elements, elements / reduced, machine)
    return _columns(kernel, _streaming(kernel, machine), shape, reduced, machine)


def _normalises(kernel: Kernel, elements: float) -> bool:
    """Whether its results are as many as what it reduces: by elements where they are known, else by bytes."""
    return 2 * kernel.elements >= elements if kernel.elements else kernel.written_bytes * 8 >= elements


def _loaded(kernel: Kernel) -> int:
    """Operands that are loaded for every element that is reduced, at least one: all but scalars."""
    return max(1, sum(size > SCALARS for size in kernel.operand_bytes))


def _start(kernel: Kernel, machine: GpuMachine) -> float:
    """Launch, what follows a reduction's last load, and in a program, where other kernels ran in between, the first one."""
    waited = machine.parameters.wait_cycles if kernel.recency is not None else 0.0
    return machine.launch + (machine.parameters.reduction_cycles + waited) / machine.clock


def reduction_instructions(kernel: Kernel, machine: GpuMachine) -> float:
    """Thread instructions of a reduction: its arithmetic's, and those that every narrow row costs.

    A load and its address for each element of a row of few, but no more than what a row's lanes take to load by vectors, exchange
    their sums and write one result: so many instructions a row of f32 numbers, and half as many of 16 bits, of which a thread
    loads twice as many at once. Packed integers that are spread out are unpacked anew for every sum that they are part of,
    with as many instructions as a product's tiles take for it.
    """
    issued = instructions(kernel, machine, machine.parameters.reduction_instructions)
    shape = kernel.geometry
    if kernel.stored_bits and isinstance(shape, Reduction):
        issued += len(kernel.stored_bits) * machine.parameters.unpacking_instructions * math.prod(shape.shape)
    if isinstance(shape, Reduction) and 0 < math.prod(shape.shape[d] for d in shape.dims) <= NARROW and shape.dims:
        row = math.prod(shape.shape[d] for d in shape.dims)
        wide = min(1.0, element_bytes(kernel.dtype) / F32_BYTES)
        p = machine.parameters
        each = smaller(_loaded(kernel) * p.step_instructions, p.narrow_row_instructions * wide / row)
        issued += math.prod(shape.shape) * each
    return issued


def normalisation_instructions(kernel: Kernel, elements: float, rows: float, machine: GpuMachine) -> float:
    """Thread instructions of a fused normalisation: a program's start counts as so many elements of its row."""
    p = machine.parameters
    per_element = (kernel.vector_flops + kernel.transcendentals) / elements
    start = p.row_start * min(1.0, elements / rows / PROGRAM)
    return (elements + rows * start) * per_element * p.row_instructions


def _streaming(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A pass over memory; what it picks comes from L2 as often as it is picked."""
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    picked = kernel.fetched_bytes / machine.cache_bandwidth if "gather" in kernel.flags else 0.0
    memory = larger(moved.seconds, picked)
    issued = reduction_instructions(kernel, machine)
    compute = issued / machine.instruction_rate
    time = _start(kernel, machine) + machine.overlapped(memory, compute)
    return GpuWork(
        time=time,
        compute=compute,
        fixed=_start(kernel, machine),
        memory=memory,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = start + |max(mem, picked), issue|_p" if picked else "t = start + |mem, issue|_p",
        terms=(
            *moved.terms,
            *(machine.named(("rows that are picked, from L2", "picked", picked, "s")) if picked else ()),
            *_issue_terms(kernel, issued, compute, machine),
        ),
    )


def _issue_terms(kernel: Kernel, issued: float, compute: float, machine: GpuMachine) -> tuple[Term, ...]:
    if not machine.explaining:
        return ()
    return machine.named(
        *machine.issuing(issued, compute),
        ("launch, and from the last load to the result", "start", _start(kernel, machine), "s"),
        ("norm of what overlaps", "p", machine.parameters.overlap, ""),
    )


def _columns(kernel: Kernel, base: GpuWork, shape: Reduction, reduced: float, machine: GpuMachine) -> GpuWork:
    """A column reduction: the loads of its steps wait for each other, in as many waves as its blocks need (`column_sums`)."""
    p, walk = machine.parameters, column_walk(kernel, shape)
    waves = larger(1.0, walk.blocks / (walk.resident * machine.sms))
    missed = base.dram_bytes / max(1.0, kernel.read_bytes + kernel.written_bytes)
    crowded = missed * smaller(1.0, walk.blocks / machine.sms)
    kept = _kept_arrays(kernel, shape)
    width = kernel.written_bytes / max(1, kept * math.prod(shape.shape))
    each = _step_cycles(walk, crowded, machine, kept=kept, width=width)
    latency = walk.steps * each / machine.clock * waves
    checked = walk.form == "columns" and walk.steps > 1 and reduced % TILE > 0
    rests = larger(1.0, walk.blocks * walk.vector / (RESIDENT * machine.sms)) if checked else 0.0
    further = waves * (reduced_results(kernel.ops) - 1) if walk.form == "columns" else 0.0
    partial = (p.column_rest_cycles * rests + p.column_result_cycles * further) / machine.clock
    time = _start(kernel, machine) + partial + machine.overlapped(base.memory, base.compute, latency)
    return GpuWork(
        time=time,
        compute=base.compute,
        fixed=_start(kernel, machine) + partial,
        memory=larger(base.memory, latency),
        dram_bytes=base.dram_bytes,
        instructions=base.instructions,
        formula="t = start + rest + |mem, issue, steps|_p",
        terms=(
            *base.terms,
            *machine.named(
                ("thread blocks", "n", walk.blocks, ""),
                ("waves of blocks", "w", waves, ""),
                ("steps down a column", "s", walk.steps, ""),
                ("loads of a step", "q", walk.loads, ""),
                ("cycles of a step", "l", each, ""),
                ("latency of all steps", "steps = w s l / f", latency, "s"),
                ("last steps that are not full ones, and further results", "rest", partial, "s"),
            ),
        ),
    )


def _kept_arrays(kernel: Kernel, shape: Reduction) -> int:
    """Arrays that a reduction writes element by element beside its sums."""
    if kernel.written_bytes < math.prod(shape.shape):
        return 0
    return max(1, len(kernel.writes) - reduced_results(kernel.ops))


def _step_cycles(walk: ColumnWalk, crowded: float, machine: GpuMachine, *, kept: int, width: float) -> float:
    """Cycles of a step of a column reduction.

    Numbers that are stored one by one are parts of as many more sectors as they are wider: scores that are kept in f32 take 900
    to 1,200 cycles for each of a step's stores, batch norms that keep bf16 450 (H200).

    Args:
        walk: How it walks.
        crowded: The share of what it reads that comes from memory, times that of the SMs that ask for it at the same time.
        machine: The GPU.
        kept: Arrays that it writes, element by element.
        width: Bytes of their elements.
    """
    p = machine.parameters
    if walk.form != "columns":
        each = p.few_turn_cycles + crowded * max(0.0, walk.loads * p.column_load_cycles - p.few_turn_cycles)
        waits = kept and walk.form == "few" and walk.steps > UNROLLED  # fewer turns are loaded before any is stored
        return larger(each, p.few_kept_cycles / walk.vector) if waits else each
    each = p.column_step_cycles + crowded * max(0.0, walk.loads * p.column_load_cycles - p.column_step_cycles)
    if not kept:
        return each
    shared = crowded * smaller(1.0, larger(0.0, walk.blocks / machine.sms - 1))  # by blocks of one SM
    waited = p.column_wait_cycles if walk.stores and walk.apart > 1 else 0.0  # for loads behind the last step's stores
    chain = waited + kept * walk.apart * p.column_chain_cycles
    wider = width / KEPT_BYTES if walk.apart > 1 else 1.0
    return largest((each, chain, walk.stores * wider * shared * p.column_kept_cycles))


@functools.lru_cache(maxsize=4096)
def reduced_results(ops: tuple[str, ...]) -> int:
    """Reductions of a fusion, at least one."""
    return max(1, sum(short_name(name) == "reduce" for name in ops))


def _normalisation(kernel: Kernel, elements: float, rows: float, machine: GpuMachine) -> GpuWork:
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    issued = normalisation_instructions(kernel, elements, rows, machine)
    compute = issued / machine.instruction_rate
    time = _start(kernel, machine) + machine.overlapped(moved.seconds, compute)
    return GpuWork(
        time=time,
        compute=compute,
        fixed=_start(kernel, machine),
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = start + |mem, issue|_p",
        terms=(*moved.terms, *machine.named(("rows", "r", rows, "")), *_issue_terms(kernel, issued, compute, machine)),
    )


def _pooled_gather(kernel: Kernel, elements: float, machine: GpuMachine) -> GpuWork:
    """Rows picked from a table and summed: every element's address is computed, then HBM serves what L2 has not.

    Where sums are joined to something, each is a loop of one thread, whose step loads an index and what it picks.
    """
    if elements <= output_elements(kernel) * 1.01:
        moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
        started = blocks(output_elements(kernel), machine) / machine.block_rate
        time = machine.launch + machine.overlapped(moved.seconds, started)
        return GpuWork(
            time=time,
            compute=started,
            computing=0.0,
            fixed=machine.launch,
            memory=moved.seconds,
            dram_bytes=moved.dram_bytes,
            formula="t = launch + |mem, start|_p",
            terms=(
                *moved.terms,
                *machine.named(
                    ("starting blocks", "start", started, "s"),
                    ("launch", "launch", machine.launch, "s"),
                    ("norm of what overlaps", "p", machine.parameters.overlap, ""),
                ),
            ),
        )
    p = machine.parameters
    joined = bool(kernel.ops) and short_name(kernel.ops[-1]) == "concatenate"
    issued = elements * (2 * p.step_instructions if joined else p.gather_instructions)
    dram = missed_bytes(kernel.picked, machine) if kernel.picked else kernel.read_bytes + kernel.written_bytes
    memory = dram / (machine.device.memory_bandwidth * p.picked_bandwidth)
    compute = issued / machine.instruction_rate
    return GpuWork(
        time=_start(kernel, machine) + compute + memory,
        compute=compute,
        fixed=_start(kernel, machine),
        computing=instructions(kernel, machine) / machine.instruction_rate,
        memory=memory,
        dram_bytes=dram,
        instructions=issued,
        formula="t = start + issue + mem",
        terms=(
            *machine.named(
                ("gathered elements", "e", elements, ""),
                ("bytes that L2 no longer holds", "B", dram, "B"),
                (
                    "bandwidth of rows picked at random",
                    "W",
                    machine.device.memory_bandwidth * p.picked_bandwidth,
                    "B/s",
                ),
                ("memory", "mem = B/W", memory, "s"),
            ),
            *_issue_terms(kernel, issued, compute, machine),
        ),
    )


def _is_scan(kernel: Kernel) -> bool:
    """Whether it keeps a running result: a scan by name, or a window as long as its dimension, which a reduction describes."""
    return "scan" in kernel.flags or any(short_name(name) == "reduce_window" for name in kernel.ops)


def _scan(kernel: Kernel, shape: Reduction, elements: float, machine: GpuMachine) -> GpuWork:
    """A prefix sum: XLA (`reduce_window_rewriter.cc`) sums windows of 16, scans their totals likewise, and adds them back.

    `t = (levels + 1) launch + 17/16 e w i / I + mem`: a kernel for each of the levels above the first, whose windows are summed
    where the totals are added back; every one of `e` elements goes over the `w` up to 16 of its window.
    """
    p = machine.parameters
    length = math.prod(shape.shape[d] for d in shape.dims)
    window = min(length, SCANNED)
    levels = scan_levels(length)
    applied = max(0.0, kernel.vector_flops / elements - 1) * p.loop_instructions
    applied += kernel.transcendentals / elements * p.loop_transcendental
    issued = elements * window * (p.step_instructions + applied) * (1 + 1 / SCANNED if levels else 1)
    compute = issued / machine.instruction_rate
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    memory = moved.seconds if levels else larger(0.0, moved.seconds - compute)
    fixed = machine.launch * (levels + 1)
    return GpuWork(
        time=fixed + compute + memory,
        compute=compute,
        fixed=fixed,
        memory=memory,
        dram_bytes=moved.dram_bytes * min(2, levels + 1),
        instructions=issued,
        formula="t = (levels + 1) launch + issue + mem",
        terms=(
            *moved.terms,
            *machine.named(
                ("levels of windows above the first", "levels", levels, ""),
                ("elements of a window", "w", window, ""),
                *machine.issuing(issued, compute),
                ("launch", "launch", machine.launch, "s"),
            ),
        ),
    )
