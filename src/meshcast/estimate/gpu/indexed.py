"""Gathers and scatters: 32-byte sectors of picked rows, atomic updates.

A gather is a loop over its results that reads whole sectors; what L2 still holds of them is served from there
(`picks.py`). A scatter with an addition updates each element by an atomic in L2; types that the hardware cannot add
atomically (2 bytes) take a compare-and-swap loop (`_swapped`). Updates of a line take turns in the L2 slice that holds it, so
three things bound them, beside the visits to lines that short rows share (`_line_visits`):
 - all together, `even = elements / rate`, when every slice has the same share;
 - the busiest slice, `even + z * turn * sqrt(chunks * sum(n_r^2) / slices)`, as rows fall on slices by a hash and come
   `n_r` times each; `slices = rate of lines * turn`;
 - the hottest row alone, `hot = max(n_r) * turn`.
`t = launch + |busiest, hot|_p`, joined with the memory's time. Seen on an H200 (`data/measured/h200-scatters`): a line of
128 bytes takes 2.3 ns a turn, two neighbouring ones share a slice, and the chunks of a longer row fall on about six.
"""

from __future__ import annotations

import math

from meshcast.base import larger, smaller
from meshcast.estimate.gpu.elementwise import blocks, instructions, loop, loop_fusion
from meshcast.estimate.gpu.machine import THREADS_PER_SM, GpuMachine, GpuWork
from meshcast.estimate.gpu.picks import Picks, missed_bytes, picked_bytes, picks_of, row_bytes
from meshcast.lower import Kernel
from meshcast.workload import DTYPE_BITS, Indexed

LINE = 128  # bytes; a warp's 32 atomics on 4-byte elements
LANES = 32
SLICE_LINES = 2  # neighbouring lines in one L2 slice
WORD = 4  # bytes that are compared and swapped
ROW_SLICES = 6  # slices that the chunks of a long row spread over


def gather(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """Slices picked from a table by index."""
    shape = kernel.geometry
    if not isinstance(shape, Indexed):
        return loop_fusion(kernel, machine)
    elements = float(shape.count * math.prod(shape.slice_shape))
    return loop(elements, picked_bytes(shape, kernel.written_bytes, machine), kernel.written_bytes, 0.0, machine)


def scatter(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """Updates added to slices of a table."""
    shape = kernel.geometry
    if not isinstance(shape, Indexed):
        return loop_fusion(kernel, machine)
    p = machine.parameters
    elements = float(shape.count * math.prod(shape.slice_shape))
    _, row = row_bytes(shape)
    slower = p.compare_swap_cost if DTYPE_BITS[shape.table.dtype] < 32 else 1.0
    picks = picks_of(shape)
    if shape.extremum:  # what is no new largest reads, and leaves
        atomics = elements * slower / (p.atomics_per_sm_cycle * machine.sms * machine.clock)
    else:
        atomics = larger(_in_turns(elements, picks, row, slower, machine), _line_visits(shape, machine))
        atomics = larger(atomics, _swapped(shape, picks, machine)) if slower > 1 else atomics
    dram = 2 * missed_bytes(shape, machine)
    memory = dram / (machine.device.memory_bandwidth * p.hbm_read)
    started = blocks(elements, machine) / machine.block_rate
    time = machine.launch + machine.overlapped(larger(atomics, started), memory)
    terms = machine.named(
        ("elements updated", "e", elements, ""),
        ("atomic updates per second", "R", p.atomics_per_sm_cycle * machine.sms * machine.clock / slower, "1/s"),
        ("updates of the hottest row", "n1", picks.hottest, ""),
        ("different rows", "d", picks.different, ""),
        ("Zipf exponent of the indices", "S", picks.skew, ""),
        ("updates in turns", "atomics = max(|busiest slice, hottest row|, shared lines, swaps)", atomics, "s"),
        ("starting blocks", "start", started, "s"),
        ("bytes of HBM", "B", dram, "B"),
        ("memory", "mem", memory, "s"),
        ("launch", "launch", machine.launch, "s"),
        ("norm of what overlaps", "p", p.overlap, ""),
    )
    formula = "t = launch + |max(atomics, start), mem|_p"
    issued = instructions(kernel, machine) / machine.instruction_rate
    return GpuWork(
        time=time, compute=atomics, computing=smaller(issued, atomics), memory=memory, dram_bytes=dram, formula=formula,
        terms=terms,
    )  # fmt: skip


def _in_turns(elements: float, picks: Picks, row: float, slower: float, machine: GpuMachine) -> float:
    """Seconds of atomic updates: even work, what the busiest slice has beyond it, and the hottest row's turns."""
    p = machine.parameters
    per_cycle = p.atomics_per_sm_cycle * machine.sms
    slices = max(1.0, per_cycle / LANES * p.hot_line_cycles)
    lines = row / LINE
    chunks = math.ceil(lines / SLICE_LINES)
    # A part of a line takes half of a turn and its part of the other half.
    turn = (min(lines, SLICE_LINES) if lines >= 1 else (1 + lines) / 2) * p.hot_line_cycles
    busiest = elements / per_cycle + p.slice_deviations * turn * math.sqrt(chunks * picks.squares / slices)
    hot = picks.hottest * turn * max(1.0, 1 + (chunks - 2) / ROW_SLICES)
    cycles = (busiest**p.hot_overlap + hot**p.hot_overlap) ** (1 / p.hot_overlap)
    return float(cycles * slower) / machine.clock


def _line_visits(shape: Indexed, machine: GpuMachine) -> float:
    """Seconds of the visits to one line, where rows are shorter than a line and share it.

    A warp of 32 updates has `r = 32 / e` rows of `e` elements, which fall on `L (1 - (1 - 1/L)^r)` of the table's `L` lines; each
    of those is visited once, and visits of a line follow each other.
    """
    length = max(1, shape.slice_shape[-1] if shape.slice_shape else 1)
    lines = max(1.0, shape.table.bytes / LINE)
    if length * shape.table.bytes / max(1, shape.table.elements) >= LINE or shape.unique:
        return 0.0
    warps = shape.count * math.prod(shape.slice_shape) / LANES
    rows = max(1.0, LANES / length)
    touched = lines * -math.expm1(rows * math.log1p(-1 / lines)) if lines > 1 else 1.0
    return warps * touched / lines * machine.parameters.line_visit_cycles / machine.clock


def _swapped(shape: Indexed, picks: Picks, machine: GpuMachine) -> float:
    """Seconds of updates by compare and swap that meet in one word: of all that wait for it, one succeeds a round.

    A word with `u` updates takes `u` rounds. A round is a load and a swap of those that wait; warps with up to `w` words of the
    line visit it one by one, `W` of them: half of all that ever do, but no more than are in flight and happen to be there, by the
    hottest line's share `s` of all updates: `1 / lines` where rows are picked evenly, the hottest row's share over the lines that
    it fills where they are not,

        rounds = (updates of the hottest row) x (its numbers in a word)
        t = rounds x (swap_round + swap_word w + swap_visit W) / clock,   W = min(visits / 2, s x warps in flight)

    Measured on an H200 (`data/measured/h200-few-rows`; 53 % off in the mean, at worst 4.5 times too fast): 4,096 bf16 rows of 768
    added to one take 64 ms, f32 rows 40 us. Numbers decide, too: a sum that an addition leaves as it is, or that is no number, is
    not swapped. Where a table has more lines than warps are in flight, updates hardly meet: a round is one visit.
    """
    p = machine.parameters
    length = max(1, math.prod(shape.slice_shape))
    lines = max(1.0, shape.table.bytes / LINE)
    numbers = shape.table.elements / max(1.0, shape.table.bytes / WORD)  # in a word of the table
    rounds = picks.hottest * min(numbers, shape.table.elements)
    if rounds <= numbers:  # no row twice
        return 0.0
    a_line = LINE * numbers / WORD
    share = max(1 / lines, picks.hottest / max(1, shape.count) / max(1.0, length / a_line))
    flying = share * THREADS_PER_SM * machine.sms / LANES
    if flying < 1:
        return rounds * p.line_visit_cycles / machine.clock
    rows_of_a_warp = max(1.0, LANES / length)
    rows = max(1.0, shape.table.elements / length)
    different = rows * -math.expm1(rows_of_a_warp * math.log1p(-1 / rows)) if rows > 1 else 1.0
    words = min(LANES, different * min(length, a_line) / numbers, shape.table.elements / numbers)
    touched = lines * -math.expm1(min(rows_of_a_warp, different) * math.log1p(-1 / lines)) if lines > 1 else 1.0
    visits = picks.hottest if length >= a_line else shape.count * length / LANES * touched * share
    waiting = min(visits / 2, flying)
    a_round = p.swap_round_cycles + p.swap_word_cycles * max(1.0, words) + p.swap_visit_cycles * waiting
    return rounds * a_round / machine.clock
